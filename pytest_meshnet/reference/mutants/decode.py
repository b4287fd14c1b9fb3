"""Mutants."""

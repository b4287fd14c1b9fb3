"""Turning a live route into parts of an acceptance record.

Each collector measures one thing and returns claims with their source; what it cannot measure it
leaves out, so that the judge finds no evidence instead of a guess.
"""

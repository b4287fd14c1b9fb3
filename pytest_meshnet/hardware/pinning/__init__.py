"""Choosing devices: what masks leave visible, what a person selected, and who holds which."""

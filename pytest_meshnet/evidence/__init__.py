"""Signed evidence of a run: written while it happens, judged again by a stranger."""

"""CORRECTNESS_REFERENCE: what the model says when nothing is left to chance, kept in full."""

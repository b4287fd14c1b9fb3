"""The proof that the tests bite, and that they are fair: every mutant and every variant, run."""

"""A run in which a suite takes part, from its first option to its verdict."""

"""A simulated FreeToken, a process of its own: for tests of the runner, never evidence of speed."""

"""GPUs: which are there, which one a test gets, and whether the test really ran on it."""

"""What must hold, who claims it, whether it applies, and what a run's records say about it."""

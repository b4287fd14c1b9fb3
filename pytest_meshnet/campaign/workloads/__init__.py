"""Workloads: the four classes, the frozen manifest of their prompts, and how one is frozen."""

"""The phase-0 campaign of one RTX 3060: workloads, arms, runner, attribution, judge, analysis."""

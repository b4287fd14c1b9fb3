"""Speed as ratios against floors measured in the same run: `python -m acceptance.speed`."""

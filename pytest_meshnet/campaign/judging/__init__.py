"""From the record of a campaign to its status, its validity and the reasons, by pure functions."""

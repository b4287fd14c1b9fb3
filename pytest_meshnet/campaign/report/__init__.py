"""What a person reads of a campaign: run.json, SUMMARY.md, and a page with plots."""

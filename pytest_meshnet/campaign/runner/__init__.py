"""Running a campaign: servers, requests, and everything that they leave behind."""

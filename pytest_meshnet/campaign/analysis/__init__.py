"""Statistics of recorded blocks and what the records deserve to have said about them."""

"""Where the processes of a test really are, and what that proves."""

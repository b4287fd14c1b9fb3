"""The client of an OpenAI-compatible server: what came when, and the figures that follow."""

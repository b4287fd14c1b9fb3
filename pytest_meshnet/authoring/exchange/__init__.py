"""Exchanges of frames as text: written, drawn, and played on a Shard."""

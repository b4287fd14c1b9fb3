"""Keys, envelopes and trust: who says something, and whether that is somebody we know."""

"""The artifact on disk: GGUF headers, the tensor inventory, who owns what, and verification."""

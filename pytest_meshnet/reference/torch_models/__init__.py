"""Models on torch and transformers, cut into Shards: each loads and holds only its own layers."""

"""Whether a route of Shards computes what the whole model computes, and whether we would notice."""

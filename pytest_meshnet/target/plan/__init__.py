"""Planning: machines and reserves, caches, seams, the published arithmetic, exact placement."""

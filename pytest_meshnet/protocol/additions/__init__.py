"""What version 1.1 adds to the wire: features, boundary spec, sampling, sideband."""

"""Whether a route computes what the whole model computes: oracles, metrics, lanes, calibration."""

"""What a run will do, before it does anything: arms, commands, provenance, refusals."""

"""Golden scenarios of the batching operators: several calls each, some of which wait for others."""

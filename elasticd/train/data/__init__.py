"""The data: it deals each global batch to any number of ranks, and counts every sample once."""

"""The device of a worker: which GPU is its own, and the little that is asked of CUDA or HIP."""

"""What a worker is given: its environment, its files, its log folder and its GPUs."""

"""The logs of workers: the requested part, the times of writing, and the ranks that are shown."""

"""What the commits of a worker give to TensorBoard: numbers and histograms, read off the device."""

__all__: list[str] = []

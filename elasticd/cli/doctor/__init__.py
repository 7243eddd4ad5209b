"""`elasticd doctor`: checks everything that a run needs, before a run uses GPUs."""

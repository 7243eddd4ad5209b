"""`elasticd doctor`: looks at everything that a run needs, before it spends GPUs."""

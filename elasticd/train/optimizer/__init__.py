"""The optimizers: what a step changes, and how a step that may not count is undone."""

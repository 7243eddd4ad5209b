"""`elasticd checkpoint`: each sub-command has its own file."""

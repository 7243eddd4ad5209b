"""`elasticd checkpoint`: one file a sub-command."""

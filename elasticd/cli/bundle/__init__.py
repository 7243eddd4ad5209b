"""`elasticd bundle`, and `--bundle` of `elasticd run`: one file about a job for a colleague."""

__all__: list[str] = []

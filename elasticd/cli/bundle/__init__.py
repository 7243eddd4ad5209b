"""`elasticd bundle`, and `--bundle` of `elasticd run`: one file for a colleague."""

__all__: list[str] = []

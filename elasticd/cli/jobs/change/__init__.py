"""The commands that change jobs or nodes: one file each. Each has `--dry-run`."""

__all__: list[str] = []

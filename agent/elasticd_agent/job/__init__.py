"""One job on this node."""

__all__: list[str] = []

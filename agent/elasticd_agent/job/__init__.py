"""One job on this node: its runner, its effects on etcd, its watches and its records."""

__all__: list[str] = []

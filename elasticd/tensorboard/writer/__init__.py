"""The process that writes event files: a child of the agent of the node with rank 0.

It reads the workers' messages, keeps them in memory for some seconds, and writes one file at each
flush. It never imports torch, and has no connection to etcd.
"""

__all__: list[str] = []

"""The process that writes event files: a child of the agent of the node on which rank 0 is.

It reads what workers send, keeps it in memory for some seconds, and writes one file at each flush.
It never imports torch, and knows nothing of etcd.
"""

__all__: list[str] = []

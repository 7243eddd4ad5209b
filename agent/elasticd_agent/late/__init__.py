"""Late nodes: what this node measures of its waits, and the judge on the node of rank 0.

`elasticd.goodput.late` says which node all others wait for; here its facts come from heartbeats and
member records, and what it finds goes to etcd, to the log, and, with `--on-late drain`, the way of
every drain.
"""

__all__: list[str] = []

"""Late nodes: what this node measures of its waits, and the judge on the node of rank 0.

`elasticd.goodput.late` says which node all others wait for; here its facts come from heartbeats and
member records. What it finds goes to etcd and to the log; with `--on-late drain` the node is then
drained like any other.
"""

__all__: list[str] = []

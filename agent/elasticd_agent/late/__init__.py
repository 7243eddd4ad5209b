"""Late nodes (stragglers): each node measures its waits, and the node of rank 0 judges.

`node_wait` measures how long this node's ranks wait in collectives, from their heartbeats.
`late_judge` gives what all nodes report to `elasticd.goodput.late`, which says which node all
others wait for, and writes the finding to etcd and to the log. With `--on-late drain`, `drain` then
drains that node like any other.
"""

__all__: list[str] = []

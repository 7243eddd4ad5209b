"""Writes event files that TensorBoard reads, without TensorBoard and without torch.

A worker's `Sender` passes the numbers of its commits to the writer of its node (`writer`), a child
of the agent. The writer makes one immutable file at each flush: a file on object storage cannot
grow, and to write the whole file again each time would take quadratic time.

All ranks keep the numbers of their last commits, and only rank 0 sends. So nothing is missing when
the node of rank 0 is lost: the next rank 0 sends the steps that are in no file yet.
"""

__all__: list[str] = []

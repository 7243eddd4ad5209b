"""Writes event files that TensorBoard reads, without TensorBoard and without torch.

A worker's `Sender` passes the numbers of its commits to the writer of its node (`writer`), a child
of the agent. That writes one immutable file at each flush: a file on object storage cannot grow,
and writing the whole of it anew each time would be quadratic.

All ranks keep what they committed last, and only rank 0 sends. So nothing is missing when the node
of rank 0 is lost: the next rank 0 sends what is in no file yet.
"""

__all__: list[str] = []

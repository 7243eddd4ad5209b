"""Event files that TensorBoard reads, written without it and without torch.

A worker's `Sender` gives what its commits were given to the writer of its node (`writer`), a child
of the agent, which makes one immutable file of it at each flush: a file on object storage cannot
grow, and to write the whole of it anew each time would be quadratic.

All ranks keep what they committed last, and rank 0 alone sends. So nothing is missing when the node
of rank 0 is lost: who is rank 0 then sends what no file has yet.
"""

__all__: list[str] = []

"""The keeper: one process per job and node that holds what workers copied into shared memory.

It outlives its workers, so what a worker finished copying is not lost with it. It uploads, commits,
looks for what to restore, reads it back, and deletes by policy; a worker only copies memory and
sends a few hundred bytes. The memory is a memfd that travels over a unix socket: it has no name,
needs no /dev/shm (64 MB in a container), and is gone when nobody holds it. What only one rank has
it sends to the next node's keeper, so that a node may be lost too (`sending`, `receiving`).

Started with `python -m elasticd.keeper` by the agent, which also ends it. Rejected: a
thread in the worker (competes for the interpreter lock, dies with it); a fork of the worker (the
drivers of fsspec do not survive one); one keeper for all jobs (their credentials differ).
"""

__all__: list[str] = []

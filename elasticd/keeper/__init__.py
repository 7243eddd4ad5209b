"""The keeper, a checkpoint server: one process per job and node, with the snapshots in memory.

It outlives its workers, so a finished copy is not lost with its worker. It uploads, commits, finds
what to restore, reads it back, and deletes by policy; a worker only copies memory and sends a few
hundred bytes. The memory is a memfd that is passed over a unix socket: it has no name, needs no
/dev/shm (64 MB in a container), and is freed when nobody holds it. Shares that only one rank has go
from the keeper to the next node's keeper, so that a node may be lost too (`keeper.mirror`).

The agent starts it with `python -m elasticd.keeper`, and also ends it. Rejected: a thread in the
worker (it competes for the interpreter lock, and dies with it); a fork of the worker (the drivers
of fsspec do not survive one); one keeper for all jobs (their credentials differ).
"""

__all__: list[str] = []

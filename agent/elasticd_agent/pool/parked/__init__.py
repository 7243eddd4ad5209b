"""Parked workers: processes forked before they are needed, which wait for the order of a worker.

A fork of a process with torch takes 8 to 20 ms of a recovery. So when the last launch has settled,
one process for each worker is forked from where the next workers would come (`parked_workers`). It
leaves the pool's descriptors, signals and session, and waits (`parked_process`) for the order that
`order` hands over. Before the order it is no worker: it runs no line of the job, and has none of
its names, environment or files.
"""

__all__: list[str] = []

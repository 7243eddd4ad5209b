"""Parked workers: processes forked before they are needed, which wait to be told whose they are.

A fork of a process with torch takes 8 to 20 ms of a recovery. So when the last launch has settled,
one process for each worker is forked from where the next workers would come (`parked_keeper`). It
leaves the pool's descriptors, signals and session, and waits (`parked_process`) for what `order`
hands over. It is no worker before the pool says so: it runs no line of the job, and has no name,
environment or file of it.
"""

__all__: list[str] = []

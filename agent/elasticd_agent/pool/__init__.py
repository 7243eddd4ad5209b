"""The warm pool: one process that has imported torch, forks a job's workers, reaps and guards them.

Its own process, forked from the fork server or started by the agent as `python -u -m
elasticd_agent.pool --fd N`. The agent never imports torch: that would cost it seconds, threads and
memory. The messages on the socket stand in `elasticd.channel`.

From the outside in: `__main__` (start), `job_pool` (its life), `warmup` (the imports), `guardian`
(the loop), `launch` (fork or spawn), `child` (one worker as the pool sees it),
`store_host_supervisor` and `store_host` (fresh TCPStores, and the process that hosts them),
`process` (what Linux knows of a process), then what runs in the new process: `worker` (become the
job's, run the script).
"""

__all__: list[str] = []

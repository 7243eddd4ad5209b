"""The process that has imported torch once, and from which the warm pools of jobs are forked.

Its own process, started as `python -u -m elasticd_agent.pool.fork_server`, by an agent for all jobs
of its node or by `elasticd run` for all agents of this machine. It holds no job and no secret.

From the outside in: `__main__` (start), `server` (the loop), `fork_check` (whether an order may be
a fork), `surroundings` and `installation` (the facts by which `fork_check` judges), `forked_pool`
(from a copy of the server to the pool).
"""

__all__: list[str] = []

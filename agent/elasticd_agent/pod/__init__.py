"""The agent in a container: what it must do in a pod, under Docker, or in a systemd unit.

Its node's name comes from outside (`downward_api`), folders may be missing (`mounts`), memory has a
limit and the kernel kills who passes it (`memory`), nobody else may be there to reap a process
whose parent is gone (`reaper`), process 1 gets no signal that it has no handler for
(`first_process`), and what an agent leaves behind ends with it (`keeper_wait`). Nothing in here
knows of Kubernetes' API, and nothing needs it.
"""

__all__: list[str] = []

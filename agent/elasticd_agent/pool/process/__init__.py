"""What Linux knows of a process: its descendants, its mark, its niceness, its signals and files.

Nothing in here knows of jobs or workers, so `elasticd_agent.pod` uses it too. `process_table`
reads /proc, `mark` names a worker on all that descends from it, `subtree` ends all of them,
`prctl` and `niceness` wrap switches of the kernel, and `inheritance` sheds what a fork copied.
"""

__all__: list[str] = []

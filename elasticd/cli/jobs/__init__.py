"""The commands about jobs and nodes that only look, wait or clear away: one file each.

They parse, open the records through `elasticd.cli.record_source`, call `elasticd.control` and
print. Commands that change a running job stand in `elasticd.cli.jobs.cluster_change`.
"""

__all__: list[str] = []

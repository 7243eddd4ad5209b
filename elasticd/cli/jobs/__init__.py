"""The commands about jobs and nodes that read, wait or remove records: one file each.

The commands parse, open the records through `elasticd.cli.record_source`, call `elasticd.control`
and print. The commands that change a running job are in `elasticd.cli.jobs.change`.
"""

__all__: list[str] = []

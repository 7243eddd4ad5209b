"""What an agent answers over HTTP: its workers' logs, their progress, its metrics, its health,
and what a bundle needs of it.

One server (`server`) with a table of routes. Where etcd needs client certificates, so does this, of
the same CA; without, who reaches the port can read the logs. A second, plain one answers the two
questions of a probe (`probes`), for those that have no certificate. Nothing can be written.
"""

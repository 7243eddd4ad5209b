"""What an agent answers over HTTP: logs, progress, metrics, health, and its part of a bundle.

One server (`server`) with a table of routes. Where etcd needs client certificates, so does this, of
the same CA; without, who reaches the port can read the logs. A second, plain one answers the two
questions of a probe (`probes`), for those that have no certificate. Nothing can be written.
"""

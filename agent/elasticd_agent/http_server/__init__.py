"""What an agent answers over HTTP: logs, progress, metrics, health, and its part of a bundle.

One server (`server`) with a table of routes. If etcd needs client certificates, this server needs
certificates of the same CA too; without, everybody who reaches the port can read the logs. A
second, plain server answers a probe's two requests (`probes`) for clients that have no certificate.
Nothing can be written.
"""

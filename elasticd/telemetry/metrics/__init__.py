"""The metrics that elasticd exports to Prometheus: their list, and their text format.

`catalog` is the list; agents and keepers take names, types, units, help texts and labels from it,
and docs/metrics.md, the dashboard and the alert rules of deploy/monitoring are checked against it.
`exposition` writes samples in Prometheus' text format, the only part of `prometheus_client` that
elasticd needs: an import of that package costs an agent 70 ms and several megabytes.
"""

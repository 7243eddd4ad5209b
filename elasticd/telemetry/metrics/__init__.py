"""The metrics that elasticd exports to Prometheus: one list of them, and how they are written.

`catalog` is the list; agents and keepers take names, types, units, help texts and labels from it,
and docs/metrics.md, the dashboard and the alert rules of deploy/monitoring are checked against it.
`exposition` writes samples in Prometheus' text format, which is the whole of what we need of
`prometheus_client`: importing that costs an agent 70 ms and several megabytes.
"""

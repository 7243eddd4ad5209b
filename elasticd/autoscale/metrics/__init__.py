"""The autoscaler's own metrics: what it counts, and the port at which Prometheus finds it.

The list is that of `elasticd.telemetry.metrics`; every series is there from the beginning, at 0.
"""

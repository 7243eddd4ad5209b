"""`elasticd run --autoscale`: its flags, the job's policy, and the autoscaler's process."""

__all__: list[str] = []

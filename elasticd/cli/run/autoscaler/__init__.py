"""`elasticd run --autoscale`: its flags, the policy of its job, and the autoscaler beside it."""

__all__: list[str] = []

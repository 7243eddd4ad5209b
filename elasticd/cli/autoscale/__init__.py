"""`elasticd autoscale`: the daemon that sizes jobs, their policies, and what it decided and why."""

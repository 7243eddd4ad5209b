"""`elasticd autoscale`: the daemon that sizes jobs, the policies of jobs, and the decisions."""

"""A run on this machine: its folder, its processes, its private etcd, and its end."""

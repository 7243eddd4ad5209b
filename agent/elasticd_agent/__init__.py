"""The per-node daemon: owns workers, speaks to etcd. No torch in its own process."""

"""What stands in etcd about jobs and nodes, put together for reading."""

"""The records in etcd about jobs and nodes, joined for readers."""

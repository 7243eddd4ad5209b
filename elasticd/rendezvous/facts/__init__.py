"""Event handlers: each turns a fact from etcd, a worker or another node into state. Pure."""

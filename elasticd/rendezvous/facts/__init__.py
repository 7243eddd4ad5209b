"""Turns facts into state: what etcd, the workers and the other nodes reported. Pure."""

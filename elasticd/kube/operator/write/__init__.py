"""How the operator writes, to etcd and to the API server.

It writes to etcd only while it leads, and to the API server as the manager of its own fields. What
hangs or fails about one thing delays no other.
"""

"""The operator's writes to etcd and to the API server.

The operator writes to etcd only while it leads, and to the API server as the manager of its own
fields. A write that hangs or fails for one object delays no other object.
"""

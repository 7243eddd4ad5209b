"""The port to etcd and what stands behind it.

`api` is all that the floors above use; `etcd` is the real thing, `memory` its twin for tests and
for saved records, `embedded` a private etcd for one machine. Nothing here knows what a key or a
value means.
"""

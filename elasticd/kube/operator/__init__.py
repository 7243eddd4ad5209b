"""The operator's effects: how it observes Kubernetes and etcd, and how it writes.

One process leads, as with the autoscaler. Watches keep its observations up to date, `decide`
decides a moment after a change, and the process carries the actions out: to etcd only in
transactions that hold while its election holds, to the API server as the manager of its own fields.
All its state is stored in etcd and Kubernetes; the next leader begins by reading everything.
"""

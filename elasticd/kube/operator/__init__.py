"""The operator's effects: what it sees of Kubernetes and of etcd, and how it writes.

One process leads, as with the autoscaler. It keeps what it sees up to date by watches, lets
`decide` decide a moment after something changed, and carries out what that says: to etcd only in
transactions that hold while its election stands, to the API server as the manager of its own
fields. It keeps nothing that is not stored there; the next leader begins with a look at everything.
"""

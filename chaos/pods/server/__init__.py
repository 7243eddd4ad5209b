"""What serves all nodes of a cluster, and how it is broken.

`server_fault` knows the faults. Two of them need more than the cluster has: `older_version` is the
version before, from git, which the agents are rolled to and back from; `prometheus` is a server in
a pod that answers as a Prometheus does, or lies, for a job whose size an autoscaler reads there.
"""

"""The site of processes: agents are processes of this machine, each perhaps in a network namespace.

What a scenario breaks is known by its pid, and everything runs by one clock.
`etcd` is a real one; `network` joins the namespaces by a `switch` of our own.
"""

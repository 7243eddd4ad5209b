"""Sets the size of jobs by their policies.

`rules` are pure: each takes numbers and returns a proposal with a sentence. `decide` composes the
proposals, and is pure as well. The other parts ask Prometheus and etcd.
"""

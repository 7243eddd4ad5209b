"""Sizes jobs by their policies.

`rules` are pure: numbers in, a proposal with a sentence out. `decide` composes them, and is pure as
well. What asks Prometheus and etcd stands around them.
"""

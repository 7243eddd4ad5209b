"""Gives jobs their size by their policies.

`rules` are pure: numbers in, a proposal with a sentence out. `decide` composes them, and is pure as
well. Around them stand the parts that ask Prometheus and etcd.
"""

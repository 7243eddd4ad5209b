"""Copies the state of a commit into the memory of the node's keeper."""

"""Brings back a state that no rank has: from the memory of the nodes, or from storage."""

"""Applies the agreed world on this node: a member stops, starts and reports its workers. Pure."""

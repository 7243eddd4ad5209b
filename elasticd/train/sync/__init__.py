"""Brings every rank to the newest committed state, from the ranks that have it."""

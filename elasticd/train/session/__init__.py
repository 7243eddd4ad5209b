"""A worker's connection to its agent: the agent sends worlds, the worker sends heartbeats."""

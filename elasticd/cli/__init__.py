"""The command line: parse, load, call, print, return an exit code; no logic.

The only place that reads the environment and the only one that prints. Imports are lazy, command
by command: an agent must be up within half a second and import neither torch nor rich.
"""

"""The command line: parse, load, call, print, return an exit code; no logic.

Only this package reads the environment, and only this package prints. Each command is imported
when it is called: an agent must be up within half a second and import neither torch nor rich.
"""

from elasticd.cli import init_process

__all__ = ["init_process"]

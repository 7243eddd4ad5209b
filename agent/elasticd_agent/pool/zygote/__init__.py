"""The learned part of the warm pool: a process that has loaded what the job's script loads.

Torch is in the pool from the start. What else a script imports is known once a worker has trained:
it then names the modules that it has loaded from installed packages (`module_report`). The pool
forks a child of its own (`zygote_supervisor`) that imports them (`import_trial`), looks after each
package whether a fork is still safe (`fork_safety`, `environ_reads`), and from then on forks the
workers (`zygote`), which the pool itself adopts, guards and reaps as before. What was learned is
kept on the node for the next run (`learned_set`).
"""

__all__: list[str] = []

"""One tree of errors that says what the *caller* must do, not where it broke.

Adapters (etcd, processes, files) translate at their edge with ``raise ... from exc`` and never
log. The command line prints the message as one plain sentence; a traceback is for our own bugs.
"""

__all__ = [
    "CallError",
    "ElasticdError",
    "EnvironmentProblem",
    "Fenced",
    "InvariantBroken",
    "NotFound",
    "NotSupported",
    "Refused",
    "TimedOut",
    "Unavailable",
]


class ElasticdError(Exception):
    """The base of everything that elasticd raises on purpose."""

    exit_code = 1


class CallError(ElasticdError):
    """The user called us wrongly: say what to change, exit with 2."""

    exit_code = 2


class NotFound(CallError):
    """A job, node or file that was named does not exist."""


class Refused(CallError):
    """The request contradicts the present state (name in use, not permitted, wrong
    password, full).
    """


class NotSupported(CallError):
    """The record is of a newer schema, or a server lacks what we need."""


class EnvironmentProblem(CallError):
    """The machine lacks something: tell the operator what to install or to free."""


class Unavailable(ElasticdError):
    """A service does not answer: the caller may try again, with a limit."""

    exit_code = 2


class TimedOut(ElasticdError):
    """What was waited for has not come in the time that the user gave; it may still come."""

    exit_code = 124
    """The exit code, as that of `timeout` in coreutils."""


class Fenced(ElasticdError):
    """A newer generation rules, or our lease is over: stop writing, do not retry."""


class InvariantBroken(ElasticdError):
    """Our own bug: a decision contradicts a rule of the rendezvous. Stop, and keep the evidence."""

"""Where a job that is submitted to daemons runs, and with which priority."""

from collections.abc import Mapping, Sequence

from elasticd.cli.label_flags import labels_of
from elasticd.cli.run.rendezvous_flags import Mode
from elasticd.errors import CallError

__all__ = ["node_labels_of", "priority_of"]

MOST = 2_147_483_647
"""The largest priority, and nearly the least if negative: the limits of a priority in
Kubernetes."""


def node_labels_of(pairs: Sequence[str], mode: Mode) -> Mapping[str, str]:
    """Return what `--node-label` asks for.

    Raises: CallError: it is malformed, or there are no nodes to choose from.
    """
    if pairs and mode is not Mode.SUBMIT:
        raise CallError("--node-label chooses among daemons: give --etcd, without --join.")
    return labels_of("--node-label", pairs)


def priority_of(text: str | None, mode: Mode) -> int:
    """Return what `--priority` says, 0 without it.

    Raises: CallError: it is no whole number, it is too large, or there are no other jobs to compare
    with.
    """
    if text is None:
        return 0
    if mode is not Mode.SUBMIT:
        raise CallError("--priority is for jobs that share daemons: give --etcd, without --join.")
    try:
        priority = int(text) if len(text) < 20 else MOST + 1
    except ValueError:
        raise CallError(f"--priority {text!r} is not a whole number.") from None
    if abs(priority) > MOST:
        raise CallError(f"--priority must be from -{MOST:,} to {MOST:,}.")
    return priority

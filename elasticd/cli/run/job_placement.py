"""The placement of a job that is submitted to daemons: node labels and priority."""

from collections.abc import Mapping, Sequence

from elasticd.cli.label_flags import labels_of
from elasticd.cli.run.rendezvous_flags import Mode
from elasticd.errors import CallError

__all__ = ["node_labels_of", "priority_of"]

MOST = 2_147_483_647
"""The largest priority; its negative is the least. These are the limits of Kubernetes, except that
its least is one lower."""


def node_labels_of(pairs: Sequence[str], mode: Mode) -> Mapping[str, str]:
    """Return the labels of `--node-label`.

    Raises: CallError: a label is malformed, or the job is not submitted to daemons.
    """
    if pairs and mode is not Mode.SUBMIT:
        raise CallError("--node-label chooses among daemons: give --etcd, without --join.")
    return labels_of("--node-label", pairs)


def priority_of(text: str | None, mode: Mode) -> int:
    """Return the value of `--priority`; 0 if the flag is not given.

    Raises: CallError: the text is no whole number, the number is out of range, or the job is not
        submitted to daemons.
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

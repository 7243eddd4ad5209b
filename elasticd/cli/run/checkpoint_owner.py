"""Refuses another job's checkpoints before a job begins, if one request shows their owner.

The keepers refuse such checkpoints in any case, but only after the start of the workers.
"""

from collections.abc import Mapping
from contextlib import suppress
from threading import Thread

from elasticd.checkpoint.commit.committer import refusal_of_owner
from elasticd.checkpoint.commit.log import first_owner
from elasticd.checkpoint.storage.location import open_unprobed
from elasticd.errors import CallError
from elasticd.records.checkpoint import CheckpointSpec

__all__ = ["check_owner"]

LIMIT_S = 3.0
"""The time for a storage's answer, including a driver's import; after it the keepers will check."""


def check_owner(
    spec: CheckpointSpec | None, environ: Mapping[str, str], *, is_node: bool = True
) -> None:
    """Refuse a URL that holds another job's checkpoints; a storage that does not answer passes.

    `is_node` is true if workers run on this machine, too. If it is false, a folder of this machine
    may not be the workers' folder, so it is not checked.

    Raises: CallError: the URL holds another job's checkpoints.
    """
    if spec is None or (not is_node and spec.url.startswith("file://")):
        return
    owners: list[str] = []

    def look() -> None:
        with suppress(Exception):  # The keepers report any error again.
            owners.append(first_owner(open_unprobed(spec.url, spec.options, environ)))

    # The thread is abandoned if it hangs: a driver may search a whole network for credentials.
    thread = Thread(target=look, name="owner", daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    if owners and owners[0] not in ("", spec.owner):
        raise CallError(refusal_of_owner(spec.url, owners[0], spec.owner))

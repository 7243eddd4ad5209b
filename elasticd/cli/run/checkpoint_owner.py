"""Refuses another job's checkpoints before a job begins, where one request tells whose they are.

The keepers refuse them in any case, but only once workers have been started.
"""

from collections.abc import Mapping
from contextlib import suppress
from threading import Thread

from elasticd.checkpoint.commit.committer import refusal_of_owner
from elasticd.checkpoint.commit.log import first_owner
from elasticd.checkpoint.storage.location import open_untried
from elasticd.errors import CallError
from elasticd.records.checkpoint import CheckpointSpec

__all__ = ["check_owner"]

LIMIT_S = 3.0
"""How long a storage may take to answer, a driver's import included: then the keepers will tell."""


def check_owner(
    spec: CheckpointSpec | None, environ: Mapping[str, str], *, is_node: bool = True
) -> None:
    """Refuse a URL that holds another job's checkpoints; nothing is refused that does not answer.

    `is_node`: workers run on this machine, too. Otherwise a folder here need not be that of theirs.

    Raises: CallError: the URL is another job's.
    """
    if spec is None or (not is_node and spec.url.startswith("file://")):
        return
    owners: list[str] = []

    def look() -> None:
        with suppress(Exception):  # Whatever it is, the keepers meet it again and tell.
            owners.append(first_owner(open_untried(spec.url, spec.options, environ)))

    # The thread is left behind if it hangs: a driver may ask a whole network for credentials.
    thread = Thread(target=look, name="owner", daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    if owners and owners[0] not in ("", spec.owner):
        raise CallError(refusal_of_owner(spec.url, owners[0], spec.owner))

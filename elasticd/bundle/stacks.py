"""The stacks that one node wrote of its ranks, without secrets, and limited in length.

They are in a file of the job's folder that the rules of a bundle allow (`job_files`). A longer text
is cut in the middle: the first ranks are at its begin, and the newest text is at its end.
"""

from pathlib import Path

from elasticd.bundle.agent_client import AgentClient
from elasticd.bundle.job_files import RECORD_BYTES, JobFile, JobFiles
from elasticd.bundle.mask import Mask
from elasticd.errors import NotFound
from elasticd.records.ids import Generation, NodeId

__all__ = ["STACKS_LIMIT_BYTES", "stacks_from_agent", "stacks_from_disk", "stacks_name"]

STACKS_LIMIT_BYTES = 256 << 10
"""The size limit of the text in bytes; a node's file may be longer, since each of its ranks writes
a part."""


def stacks_name(generation: Generation, node: NodeId) -> str:
    """Return the file's name below the job's folder."""
    return f"incidents/gen-{generation}.{node}.stacks.txt"


def stacks_from_disk(
    folder: Path, name: str, mask: Mask, limit_bytes: int = STACKS_LIMIT_BYTES
) -> str:
    """Return the text of the file below the job's folder.

    Raises:
        NotFound: the name is no file of stacks, or the file is gone or cannot be read; the message
            says which.
    """
    files = JobFiles(folder)
    try:
        data = files.end(name, mask)
    except OSError as exc:
        raise NotFound(f"{name} in {folder} cannot be read ({exc.strerror}).") from exc
    size = _size(files.list(), name) if len(data) > limit_bytes else 0
    return _text(data, size, limit_bytes)


def stacks_from_agent(
    client: AgentClient, name: str, mask: Mask, limit_bytes: int = STACKS_LIMIT_BYTES
) -> str | None:
    """Return the text of the file on the client's node; None if the node does not give it."""
    data = client.end(name, RECORD_BYTES)
    if data is None:
        return None
    size = _size(client.list() or [], name) if len(data) > limit_bytes else 0
    # The agent knows the secrets of its node, but not all secrets of the job.
    return _text(mask.data(data), size, limit_bytes)


def _size(files: list[JobFile], name: str) -> int:
    return next((file.size for file in files if file.name == name), 0)


def _text(data: bytes, size: int, limit_bytes: int) -> str:
    """Return the text within the limit; `size` is the file's in bytes, 0 if `data` has all."""
    if len(data) <= limit_bytes:
        return data.decode("utf-8", "replace")
    # If a file is longer than an answer may be, its begin is not known here.
    has_begin = size <= RECORD_BYTES
    half = limit_bytes // 2 if has_begin else 0
    head, tail = data[:half], data[half - limit_bytes :]
    head = head[: head.rfind(b"\n") + 1] or head
    tail = tail[tail.find(b"\n") + 1 :] or tail
    left_out = max(size, len(data)) - len(head) - len(tail)
    mark = f"[elasticd] {left_out:,} bytes are left out here.\n\n".encode()
    return b"".join((head, b"\n" if head else b"", mark, tail)).decode("utf-8", "replace")

"""Checkpoints: what stands in object storage, who writes it, and how it is read back.

One rule carries the rest: an object, once written, never changes, and nothing counts before an
entry of the numbered log names it. So a crash at any byte leaves objects that nobody refers to, a
late writer finds its number taken, and a reader needs no listing, no rename and no etcd.

Three kinds of processes take part. A worker copies its share of the state into shared memory
(`elasticd.train.save`). The keeper (`elasticd.keeper`), one process per job and node, outlives the
worker: it uploads what is in that memory, commits, restores and deletes. Anybody with the URL may
read: the command `elasticd checkpoint` does.

Nothing in here but what a script calls imports torch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elasticd.dcp.reader import Reader
    from elasticd.dcp.writer import Writer
    from elasticd.train.save_and_load import load, save, wait

__all__ = ["Reader", "Writer", "load", "save", "wait"]

_HOMES = {
    "Reader": "dcp.reader",
    "Writer": "dcp.writer",
    "load": "train.save_and_load",
    "save": "train.save_and_load",
    "wait": "train.save_and_load",
}
"""Modules of rooms above, imported at the first use of a name."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'elasticd.checkpoint' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"elasticd.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Reads what a state holds besides tensors, without torch. Pure.

`elasticd.tensors.tree` writes the skeleton and says what its tags mean; this module turns it into
what a person or a program in another language can read. What JSON cannot express is lost (a tuple
becomes a list).
"""

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from elasticd.checkpoint.format.json_read import Damaged

__all__ = ["plain", "values"]

_DICT_TAGS = ("d", "o", "c")
_WRONG = (ValueError, KeyError, TypeError, IndexError, RecursionError, struct.error)


def plain(skeleton: str, names: Sequence[str]) -> Any:
    """Return the nested state as JSON; {"tensor": NAME} stands for a tensor.

    Raises: Damaged: it is no skeleton.
    """
    with _translated():
        _, node = json.loads(skeleton)
        return _plain(node, names)


def values(skeleton: str) -> list[tuple[str, Any]]:
    """Return the path and value of everything in a state but the tensors.

    Raises: Damaged: it is no skeleton.
    """
    with _translated():
        name, node = json.loads(skeleton)
        return list(_leaves(str(name), node))


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except _WRONG as exc:
        raise Damaged(f"The state's skeleton cannot be read: {exc}.") from exc


def _plain(node: Any, names: Sequence[str]) -> Any:
    if not isinstance(node, dict):
        return node
    tag, body = _tagged(node)
    if tag == "x":
        return {"tensor": names[body]}
    if tag in ("l", "t"):
        return [_plain(item, names) for item in body]
    if tag in _DICT_TAGS:
        return {str(key): _plain(item, names) for key, item in body}
    if tag == "f":
        return str(struct.unpack(">d", bytes.fromhex(body))[0])
    if tag == "s":
        return list(body)
    if tag in ("dtype", "device"):
        return str(body)
    raise ValueError(f"the tag {tag!r}")


def _leaves(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    tag, body = _tagged(node) if isinstance(node, dict) else ("", ())
    if tag in _DICT_TAGS:
        for key, item in body:
            yield from _leaves(f"{path}.{key}", item)
    elif tag in ("l", "t"):
        for index, item in enumerate(body):
            yield from _leaves(f"{path}[{index}]", item)
    elif tag != "x":
        yield path, _plain(node, ())


def _tagged(node: dict[str, Any]) -> tuple[str, Any]:
    for tag, body in node.items():
        return tag, body
    raise KeyError("an object without a tag")

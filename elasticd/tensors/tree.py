"""Takes nested state apart into text and tensors, so that ranks can compare and exchange it.

A checkpoint library would pickle. Pickle runs code of its writer, and does not show a person where
two ranks differ. Here everything that is not a tensor becomes JSON (the skeleton, in which numbers
stand for tensors), so that bytes from a peer can at worst be wrong, and so that a difference can be
named by its path. The price: only plain values and tensors pass.
"""

import json
import struct
import sys
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from elasticd.errors import CallError, Fenced
from elasticd.tensors.local_shard import is_distributed

__all__ = ["Tree", "check_tensor", "first_difference", "flatten", "paths", "unflatten"]

DEPTH_LIMIT = 100
"""Deeper state contains a loop: an object that holds itself."""

_DICTS: dict[str, type[dict[Any, Any]]] = {"d": dict, "o": OrderedDict, "c": Counter}
"""Kinds of dict that come back as what they were: MultiStepLR needs its Counter."""

_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__
"""Other classes of tensors have a dispatch of their own, and only they know where their numbers
are."""

_DICT_TAGS = {kind: tag for tag, kind in _DICTS.items()}
_DTYPES = {str(kind): kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}

_NUMBERS = "biufmM"
"""The kinds of numpy's dtypes whose numbers are saved: truth values, numbers, times."""

_Found = list[tuple[str, torch.Tensor]]
"""Tensors and their paths, in the order of their numbers."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A nested state, split into its tensors and a skeleton of everything else.

    In the skeleton a JSON string, number, boolean or null is itself; anything else is an object
    with one tag. An object tagged `x` is the tensor of that index. Beside the tag of a list, tuple
    or dict, `n` tells which of its items are numbers of numpy, and of which dtypes; older versions
    do not read it, and have numbers of Python.
    """

    skeleton: str
    tensors: tuple[torch.Tensor, ...]
    """The tensors; they are shared with the value that was taken apart, not copied."""
    names: tuple[str, ...] | None = None
    """Their paths, if they are known without a look into the skeleton."""
    is_placed: bool = True
    """False if tensors are on the host because nobody knows where they belong."""


def flatten(name: str, value: object) -> Tree:
    """Take `value` apart; `name` begins every path.

    Raises:
        CallError: something in it is neither a plain value nor a dense tensor; names its path.
    """
    found: _Found = []
    node = _encode(name, value, found, 0)
    try:
        skeleton = json.dumps([name, node], allow_nan=False, separators=(",", ":"))
    except ValueError as exc:
        raise CallError(
            f"{name} has a whole number of more digits than Python writes as text "
            f"({sys.get_int_max_str_digits()}), so it cannot be saved or sent: keep a text of its "
            "hex() in the state."
        ) from exc
    return Tree(skeleton, tuple(each for _, each in found), tuple(path for path, _ in found))


def check_tensor(path: str, value: torch.Tensor) -> None:
    """Refuse a tensor whose bytes are not its values.

    Raises: CallError: the tensor is sparse, quantised, without memory or a shape, or of a class of
        its own.
    """
    if torch.nn.parameter.is_lazy(value):
        raise CallError(
            f"{path} has no shape yet, since its module gets it from the first batch: call the "
            "model once with a batch before, or say how many features it takes."
        )
    is_dense = value.layout is torch.strided and not value.is_nested
    if not is_dense or value.is_quantized or value.is_meta:
        raise CallError(
            f"{path} is a tensor without ordinary memory ({value.layout}, {value.device}, "
            f"{value.dtype}), which cannot travel between ranks; keep a dense tensor in the state."
        )
    if type(value).__torch_dispatch__ is not _PLAIN_DISPATCH and not is_distributed(value):
        raise CallError(
            f"{path} is a {type(value).__name__}, a kind of tensor whose memory is its own affair, "
            "so it cannot travel between ranks; keep ordinary tensors in the state."
        )


def unflatten(tree: Tree) -> Any:
    """Put together what `flatten` took apart; the tensors are those of the tree, not copies.

    Raises: Fenced: the skeleton is not elasticd's, so its sender is no peer of this version.
    """
    try:
        _, node = json.loads(tree.skeleton)
        return _decode(node, tree.tensors)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RuntimeError,
            OverflowError, struct.error) as exc:  # fmt: skip
        raise Fenced(f"A state's skeleton cannot be read: {exc}.") from exc


def paths(tree: Tree) -> tuple[str, ...]:
    """Return the path of each tensor."""
    if tree.names is not None:
        return tree.names
    name, node = json.loads(tree.skeleton)
    found: dict[int, str] = {}
    _find_paths(name, node, found)
    return tuple(found[index] for index in range(len(tree.tensors)))


def first_difference(
    one: Sequence[str], other: Sequence[str], *, names: tuple[str, str] = ("one", "the other")
) -> str:
    """Return in a sentence where two structures differ; empty if they are equal."""
    for left, right in zip(one, other, strict=False):
        if left != right:
            return f"{names[0]} has `{left}` where {names[1]} has `{right}`."
    if len(one) == len(other):
        return ""
    longer, line = (0, one[len(other)]) if len(one) > len(other) else (1, other[len(one)])
    return f"{names[longer]} has `{line}`, which {names[1 - longer]} lacks."


def _encode(path: str, value: object, found: _Found, depth: int) -> Any:
    if depth > DEPTH_LIMIT:
        raise CallError(
            f"{path[:200]} is nested deeper than {DEPTH_LIMIT} levels, probably because an object "
            "holds itself; keep plain values in the state."
        )
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, np.generic) and type(value.item()) in (bool, int, float, str):
        return _encode(path, value.item(), found, depth + 1)
    if type(value) is float:
        is_finite = value - value == 0.0
        # JSON has no NaN, and a NaN's bits may carry meaning.
        return value if is_finite else {"f": struct.pack(">d", value).hex()}
    if isinstance(value, torch.Tensor):
        check_tensor(path, value)
        found.append((path, value))
        return {"x": len(found) - 1}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value)}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if type(value) is torch.Size:
        return {"s": list(value)}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        items = [
            _encode(f"{path}[{index}]", item, found, depth + 1) for index, item in enumerate(value)
        ]
        node = {"l" if type(value) is list else "t": items}
        return _with_dtypes(node, value)
    if isinstance(value, dict) and type(value) in _DICT_TAGS:
        return _encode_dict(path, value, found, depth)
    if isinstance(value, np.ndarray):
        raise CallError(
            f"{path} is an array of numpy, which cannot be saved or sent: keep a tensor in its "
            "place, torch.from_numpy(array)."
        )
    raise CallError(
        f"{path} is a {type(value).__module__}.{type(value).__qualname__}, which cannot be "
        "saved or sent; keep tensors, numbers, text, None, lists, tuples and dicts of them in the "
        "state (or an object whose state_dict() gives these)."
    )


def _encode_dict(path: str, value: dict[Any, Any], found: _Found, depth: int) -> dict[str, Any]:
    pairs = []
    for key, item in value.items():
        if type(key) not in (str, int):
            raise CallError(
                f"{path} has the key {key!r} of type {type(key).__name__}; keys of a state must be "
                "text or whole numbers."
            )
        pairs.append([key, _encode(f"{path}.{key}", item, found, depth + 1)])
    node: dict[str, Any] = _with_dtypes({_DICT_TAGS[type(value)]: pairs}, value.values())
    # A module's state_dict carries the versions of its layers here; loading looks at them.
    metadata = getattr(value, "_metadata", None)
    if metadata is not None:
        node["m"] = _encode(f"{path}._metadata", metadata, [], depth + 1)
    return node


def _with_dtypes(node: dict[str, Any], items: Iterable[Any]) -> dict[str, Any]:
    """Tell which items are numbers of numpy: what is computed with them rounds otherwise."""
    dtypes = [(at, each.dtype.str) for at, each in enumerate(items) if isinstance(each, np.generic)]
    return {**node, "n": dtypes} if dtypes else node


def _decode(node: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if not isinstance(node, dict):
        return node
    tag, body = _tagged(node)
    match tag:
        case "x":
            return tensors[body]
        case "l" | "t":
            items = [_decode(item, tensors) for item in body]
            for at, dtype in node.get("n", ()):
                items[at] = _of_numpy(items[at], dtype)
            return items if tag == "l" else tuple(items)
        case "f":
            return struct.unpack(">d", bytes.fromhex(body))[0]
        case "dtype":
            return _DTYPES[body]
        case "device":
            return torch.device(body)
        case "s":
            return torch.Size(body)
    value = _DICTS[tag]()
    for key, item in body:
        value[key] = _decode(item, tensors)
    for at, dtype in node.get("n", ()):
        key = body[at][0]
        value[key] = _of_numpy(value[key], dtype)
    if "m" in node:
        value._metadata = _decode(node["m"], ())  # type: ignore[attr-defined]
    return value


def _of_numpy(value: Any, dtype: str) -> np.generic:
    if isinstance(value, str):
        return np.str_(value)
    if np.dtype(dtype).kind not in _NUMBERS or isinstance(value, dict | list | tuple):
        raise ValueError(f"a number of the dtype {dtype}")
    made: np.generic = np.array([value], dtype)[0]
    return made


def _tagged(node: dict[str, Any]) -> tuple[str, Any]:
    for tag, body in node.items():
        return tag, body
    raise KeyError("an object without a tag")


def _find_paths(path: str, node: Any, found: dict[int, str]) -> None:
    if not isinstance(node, dict):
        return
    tag, body = _tagged(node)
    if tag == "x":
        found[body] = path
    elif tag in ("l", "t"):
        for index, item in enumerate(body):
            _find_paths(f"{path}[{index}]", item, found)
    elif tag in _DICTS:
        for key, item in body:
            _find_paths(f"{path}.{key}", item, found)

"""Reads labels of nodes from a call: `KEY=VALUE`, any number of them."""

from collections.abc import Iterable, Mapping

from elasticd.errors import CallError

__all__ = ["labels_of"]


def labels_of(flag: str, pairs: Iterable[str]) -> Mapping[str, str]:
    """Return the labels as a mapping; empty texts are left out.

    Raises:
        CallError: a label is not of the form `KEY=VALUE`, or a key has two values.
    """
    labels: dict[str, str] = {}
    for pair in filter(None, pairs):
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise CallError(f"{flag} {pair!r} is not of the form KEY=VALUE.")
        if labels.setdefault(key, value) != value:
            raise CallError(
                f"{flag} {key} has two values, {labels[key]!r} and {value!r}: take one."
            )
    return labels

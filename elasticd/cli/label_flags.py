"""Labels of nodes as they are written in a call: `KEY=VALUE`, any number of them."""

from collections.abc import Iterable, Mapping

from elasticd.errors import CallError

__all__ = ["labels_of"]


def labels_of(flag: str, pairs: Iterable[str]) -> Mapping[str, str]:
    """Return labels by their keys; empty texts are left out.

    Raises:
        CallError: one is not of that form, or a key has two values.
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

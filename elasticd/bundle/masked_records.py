"""The records of a job from etcd, without the secrets in them. Pure."""

import json
from collections.abc import Iterable
from dataclasses import replace

from elasticd.bundle.mask import MARK, Mask
from elasticd.bundle.secret import is_secret_name, masked_args, masked_options
from elasticd.errors import NotSupported
from elasticd.records.compression import compressed, decompressed
from elasticd.records.ids import JobName
from elasticd.records.keys import Keys
from elasticd.store.api import KeyValue

__all__ = ["archived", "masked_records"]

_STRUCTURE = frozenset(
    (
        "kind",
        "schema",
        "node",
        "nodes",
        "host",
        "address",
        "incarnation",
        "proposer",
        "name",
        "uid",
        "owner",
        "entry_kind",
        "writer",
        "phase",
        "reason",
        "cause",
        "signal",
        "limit",
        "on_late",
        "on_nan",
        "copy",
        "boot_id",
        "version",
        "token",
        "restored_from",
        "lost",
        "excluded",
        "rule",
        "outcome",
        "unit",
        "select",
        "held",
    )
)
"""The fields with names and words of closed lists; a record with other values in them is not
valid."""


def masked_records(
    items: Iterable[KeyValue], keys: Keys, job: JobName, mask: Mask
) -> tuple[list[KeyValue], list[str]]:
    """Return the records without secrets, and the keys of the records that cannot be read."""
    kept, unreadable = [], []
    for item in items:
        try:
            plain = json.loads(decompressed(item.value, item.key))
            if item.key == keys.spec(job):
                plain = _masked_spec(plain)
            masked = json.dumps(_masked(plain, mask), separators=(",", ":"), sort_keys=True)
            value = compressed(masked.encode(), item.key)
        except (NotSupported, ValueError, TypeError, AttributeError, RecursionError):
            unreadable.append(item.key)
            continue
        kept.append(replace(item, value=value))
    return kept, unreadable


def archived(items: Iterable[KeyValue], keys: Keys, job: JobName) -> list[KeyValue]:
    """Return the records as those of a local run, whose files are beside them."""
    here = Keys()
    found = []
    for item in items:
        value = item.value
        if item.key == keys.spec(job):
            plain = json.loads(decompressed(value, item.key))
            value = compressed(json.dumps({**plain, "run_folder": ""}).encode(), item.key)
        key = here.root + item.key.removeprefix(keys.root)
        found.append(replace(item, key=key, value=value))
    return found


def _masked(plain: object, mask: Mask) -> object:
    """Mask text, and the values of labels and of fields that only a newer version knows."""
    if isinstance(plain, dict):
        return {name: _masked_field(name, value, mask) for name, value in plain.items()}
    if isinstance(plain, list):
        return [_masked(item, mask) for item in plain]
    return mask.plain(plain)


def _masked_field(name: str, value: object, mask: Mask) -> object:
    if name == "labels":
        return _masked_labels(value, mask)
    return value if _is_structure(name, value) else _masked(value, mask)


def _is_structure(name: str, value: object) -> bool:
    if name not in _STRUCTURE:
        return False
    items = value if isinstance(value, list) else [value]
    return not any(isinstance(item, dict | list) for item in items)


def _masked_labels(labels: object, mask: Mask) -> object:
    """Mask the values of labels whose names mean secrets; an operator chooses label names."""
    if not isinstance(labels, dict):
        return mask.plain(labels)
    return {
        name: MARK if is_secret_name(str(name)) else mask.plain(value)
        for name, value in labels.items()
    }


def _masked_spec(plain: dict[str, object]) -> dict[str, object]:
    env, args = plain.get("env"), plain.get("args")
    masked = dict(plain)
    if isinstance(env, dict):
        masked["env"] = dict.fromkeys(env, MARK)
    if isinstance(args, list):
        masked["args"] = masked_args([str(arg) for arg in args])
    for name, place in plain.items():
        if isinstance(place, dict) and "options" in place:
            masked[name] = {**place, "options": masked_options(place["options"])}
    return masked

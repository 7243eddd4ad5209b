"""Finds the error in an ElasticJob, as the sentence that the command line would print.

The checks are, in this order: the form of each field (`field`), which the API server refuses too if
its CRD is elasticd's; the rules between fields (`rule`); and the rules that no schema can express:
storage, policies, the sizes of files.
"""

import json
import math
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Any

from elasticd.autoscale.policy_file.parser import parsed
from elasticd.checkpoint.storage.location import checked_options, checked_url
from elasticd.errors import CallError, NotSupported
from elasticd.kube.resource.schema.field import FILES_LIMIT_BYTES, SPEC, Field, Form
from elasticd.kube.resource.schema.rule import RULES
from elasticd.kube.resource.spec import ElasticJobSpec
from elasticd.records.checkpoint import read_bandwidth, read_every, read_upload_every
from elasticd.records.compression import RECORD_LIMIT_BYTES, compressed

__all__ = ["wrong"]

SHOWN = 60
"""The number of characters of a wrong value that a sentence repeats."""
_FILE_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
FILE_NAME_LIMIT = 253
FREE_DEPTH_LIMIT = 8
LABEL_NAME_LIMIT = 253 + 1 + 63
"""The longest name of a label in Kubernetes: prefix, slash, name."""
SPEC_LIMIT_BYTES = RECORD_LIMIT_BYTES - 8192
"""The size limit of a spec, compressed if it is long: the job's record has fields beside it."""


def wrong(given: Mapping[str, Any], spec: ElasticJobSpec | None) -> str:
    """Return the error in a spec, as one sentence; empty if the job can be submitted.

    Args: given: the spec in the API's form. spec: the same spec as a dataclass; None if it could
    not be read.
    """
    sentence = _form("spec", SPEC, given) or _rules(given)
    if sentence or spec is None:
        return sentence
    for check in _CHECKS:
        try:
            check(spec)
        except CallError as exc:
            return str(exc)
    return _size(given)


# --- the form of each field -------------------------------------------------------------------


def _form(path: str, field: Field, value: Any) -> str:
    match field.form:
        case Form.TEXT:
            return _text(path, field, value)
        case Form.WHOLE | Form.NUMBER:
            return _number(path, field, value)
        case Form.LIST:
            if not isinstance(value, list | tuple):
                return f"{path} {_shown(value)} is not a list."
            parts = [(f"{path}[{n}]", item) for n, item in enumerate(value)]
        case Form.MAP:
            if not isinstance(value, Mapping):
                return f"{path} {_shown(value)} is not a map of names and values."
            parts = [(f"{path}[{_shown(key)}]", item) for key, item in value.items()]
        case Form.FREE:
            return _free(path, value)
        case Form.OBJECT:
            return _object(path, field, value)
    if field.least is not None and len(parts) < field.least:
        return f"{path} is empty: give a value, or leave it out."
    if field.most is not None and len(parts) > field.most:
        return f"{path} has {len(parts)} entries, more than {field.most:g}."
    assert field.items is not None
    return next(filter(None, (_form(here, field.items, item) for here, item in parts)), "")


def _object(path: str, field: Field, value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"{path} {_shown(value)} is not an object."
    for inner in field.fields:
        given = value.get(inner.name)
        here = f"{path}.{inner.name}"
        if given is None:
            if inner.is_required:
                return f"{here} is missing: it must be given."
            continue
        if sentence := _form(here, inner, given):
            return sentence
    return ""


def _free(path: str, value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"{path} {_shown(value)} is not an object."
    if _is_deeper(value, FREE_DEPTH_LIMIT):
        return f"{path} is nested more than {FREE_DEPTH_LIMIT} levels deep, as no options are."
    return ""


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether a value is nested so deeply that recursion over it would fail."""
    if not isinstance(value, Mapping | list | tuple):
        return False
    items = value.values() if isinstance(value, Mapping) else value
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in items)


def _text(path: str, field: Field, value: Any) -> str:
    if not isinstance(value, str):
        return f"{path} {_shown(value)} is not a text: put it in quotes."
    if field.words and value not in field.words:
        return f"{path} {_shown(value)} is none of {', '.join(field.words)}."
    if field.least and not value:
        return f"{path} is empty: give a value, or leave it out."
    if field.most is not None and len(value) > field.most:
        return f"{path} has {len(value)} characters, more than {field.most:g}."
    if "\0" in value:
        return f"{path} has a character with the number 0, which no text may have."
    if field.pattern and re.fullmatch(field.pattern, value) is None:
        return f"{path} {_shown(value)} is none: write it as in {field.example}."
    return ""


def _number(path: str, field: Field, value: Any) -> str:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if field.form is Form.WHOLE and not is_whole:
        return f"{path} {_shown(value)} is not a whole number."
    if not is_whole and not (isinstance(value, float) and math.isfinite(value)):
        return f"{path} {_shown(value)} is not a number of seconds."
    if field.least is not None and value < field.least:
        return f"{path} {value:.10g} is below {field.least:.10g}, the least that makes sense."
    if field.most is not None and value > field.most:
        return f"{path} {value:.10g} is above {field.most:.10g}, the most that makes sense."
    return ""


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def _rules(given: Mapping[str, Any]) -> str:
    return next(filter(None, (rule.wrong(given) for rule in RULES)), "")


# --- what no schema can say -------------------------------------------------------------------


def _command(spec: ElasticJobSpec) -> None:
    if spec.command and not spec.command[0]:
        raise CallError("spec.command[0] is empty: it is the program to run.")


def _labels(spec: ElasticJobSpec) -> None:
    """Refuse names that no node can have: the job would wait for ever."""
    for name in spec.node_selector:
        if not name or "=" in name or len(name) > LABEL_NAME_LIMIT:
            raise CallError(
                f"spec.nodeSelector {_shown(name)} is no name of a label: write it as in "
                "nvidia.com/gpu.product."
            )


def _files(spec: ElasticJobSpec) -> None:
    for name in spec.files:
        parts = name.split("/")
        is_usable = all(_FILE_PART.fullmatch(part) for part in parts)
        if not is_usable or len(name) > FILE_NAME_LIMIT:
            raise CallError(
                f"spec.files {_shown(name)} is not usable as a file's name: take letters, digits, "
                "'.', '_' and '-', with '/' between folders, as in lib/model.py."
            )
    for name in spec.files:
        below = [other for other in spec.files if other.startswith(f"{name}/")]
        if below:
            raise CallError(f"spec.files {name!r} is a file, and {below[0]!r} lies in it.")
    nbytes = sum(len(text.encode()) for text in spec.files.values())
    if nbytes > FILES_LIMIT_BYTES:
        raise CallError(
            f"spec.files has {nbytes} bytes, more than {FILES_LIMIT_BYTES // 1024} KiB: put the "
            "script into the image, or on a volume."
        )


def _script(spec: ElasticJobSpec) -> None:
    """Refuse a script that is not there: the folder of the files is a new one, with them alone."""
    path = posixpath.normpath(spec.script)
    if not spec.files or not spec.script or path.startswith(("/", "..")):
        return
    if spec.files.keys().isdisjoint((path, f"{path}/__main__.py")):
        raise CallError(
            f"spec.script {_shown(spec.script)} is not among spec.files, in whose folder the "
            "workers start: add it to them, or give an absolute path."
        )


def _env(spec: ElasticJobSpec) -> None:
    names = [variable.name for variable in spec.env]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CallError(f"spec.env has {twice} twice: take one of them.")
    for variable in spec.env:
        if variable.value is not None and variable.value_from is not None:
            raise CallError(f"spec.env {variable.name} has value and valueFrom: take one of them.")


def _checkpoint(spec: ElasticJobSpec) -> None:
    if spec.checkpoint is None:
        return
    try:
        checked_url(spec.checkpoint.url, here="/", flag="spec.checkpoint.url")
        every = read_every("spec.checkpoint.every", spec.checkpoint.every)
        read_upload_every("spec.checkpoint.uploadEvery", spec.checkpoint.upload_every, every)
        read_bandwidth("spec.checkpoint.mirrorBandwidth", spec.checkpoint.mirror_bandwidth)
        checked_options(json.dumps(spec.checkpoint.options) if spec.checkpoint.options else "")
    except CallError as exc:
        said = str(exc).replace("--storage-options", "spec.checkpoint.options")
        raise CallError(said) from exc


def _policy(spec: ElasticJobSpec) -> None:
    if spec.autoscale is None:
        return
    # The time from which a deadline counts does not matter here: any time shows whether the text is
    # valid.
    policy = parsed(spec.autoscale.policy, file="spec.autoscale.policy", now_unix_s=0.0)
    least, most = spec.min_nodes, spec.max_nodes
    if least == most:
        raise CallError(
            f"spec.autoscale: the job runs on exactly {least} node{'' if least == 1 else 's'}, so "
            "no policy can size it: give spec.nodes a min and a max."
        )
    for key, nodes in (("min_nodes", policy.min_nodes), ("max_nodes", policy.max_nodes)):
        if nodes and not least <= nodes <= most:
            raise CallError(
                f"spec.autoscale.policy: {key} = {nodes} is outside of spec.nodes {least}:{most}: "
                "change it, or leave it out."
            )


def _size(given: Mapping[str, Any]) -> str:
    """Return the error in the size of a whole spec, which is one record of etcd; the policy is
    another record.
    """
    rest = {name: value for name, value in given.items() if name != "autoscale"}
    try:
        nbytes = len(compressed(json.dumps(rest, separators=(",", ":")).encode(), "spec"))
    except NotSupported:
        nbytes = RECORD_LIMIT_BYTES
    if nbytes <= SPEC_LIMIT_BYTES:
        return ""
    return (
        f"spec is over {SPEC_LIMIT_BYTES:,} bytes even when it is compressed, and etcd takes no "
        "more as one record: put files into the image, or on a volume."
    )


_CHECKS: tuple[Callable[[ElasticJobSpec], None], ...] = (
    _command,
    _labels,
    _files,
    _script,
    _env,
    _checkpoint,
    _policy,
)

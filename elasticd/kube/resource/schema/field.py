"""All fields of an ElasticJob's spec: the form, default, unit and meaning of each.

The schema of the CRD, the operator's own check and the page for people are made of this table. The
limits on lengths have two reasons: the whole job is one record of etcd, and a server refuses a rule
in CEL whose worst case has no limit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["FILES_LIMIT_BYTES", "SPEC", "Field", "Form", "all_fields", "field_of"]

FILES_LIMIT_BYTES = 900 * 1024
"""The size limit of all files together, as of a ConfigMap; a job's record in etcd has room for any
such text."""
TEXT_LIMIT = 8192
PATH_LIMIT = 4096
NODES_LIMIT = 10_000
SECONDS_LIMIT = 31_536_000
"""The longest duration: a year."""


class Form(StrEnum):
    """The form of a value in an ElasticJob's spec."""

    TEXT = "text"
    WHOLE = "whole number"
    NUMBER = "number"
    LIST = "list"
    MAP = "map"
    OBJECT = "object"
    FREE = "any object"
    """An object with any fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field; `least` and `most` limit a number, or the length of a text, list or map."""

    name: str
    form: Form
    meaning: str
    default: str = ""
    """The default in words for people; empty if there is none, so that the field may be absent."""
    least: float | None = None
    most: float | None = None
    pattern: str = ""
    """The pattern of the whole text, in a syntax that both RE2 and Python know."""
    example: str = ""
    words: tuple[str, ...] = ()
    items: "Field | None" = None
    """The form of the items of a list or map."""
    fields: tuple["Field", ...] = ()
    """The fields of an object."""
    is_required: bool = False
    is_fixed: bool = True
    """True if the field cannot be changed while the job exists: a JobSpec is written once."""


def _text(name: str, meaning: str, default: str = "", **more: object) -> Field:
    more.setdefault("most", TEXT_LIMIT)
    return Field(name=name, form=Form.TEXT, meaning=meaning, default=default, **more)  # type: ignore[arg-type]


def _whole(name: str, meaning: str, default: str = "", **more: object) -> Field:
    return Field(name=name, form=Form.WHOLE, meaning=meaning, default=default, **more)  # type: ignore[arg-type]


def _seconds(name: str, meaning: str, default: str, least: float = 0) -> Field:
    return Field(
        name=name,
        form=Form.NUMBER,
        meaning=meaning,
        default=default,
        least=least,
        most=SECONDS_LIMIT,
    )


def _list(name: str, meaning: str, items: Field, most: int, **more: object) -> Field:
    return Field(name=name, form=Form.LIST, meaning=meaning, items=items, most=most, **more)  # type: ignore[arg-type]


def _object(name: str, meaning: str, *fields: Field, **more: object) -> Field:
    return Field(name=name, form=Form.OBJECT, meaning=meaning, fields=fields, **more)  # type: ignore[arg-type]


_WORD = _text("", "One word of the command line.")
_SECRET_KEY = _object(
    "secretKeyRef",
    "One key of a Secret that is mounted in the agents' pods. Its value is read there, and never "
    "stands in etcd.",
    _text(
        "name",
        "The Secret.",
        least=1,
        most=253,
        pattern="[a-z0-9]([a-z0-9.-]*[a-z0-9])?",
        example="s3-credentials",
        is_required=True,
    ),
    _text(
        "key",
        "The key in it.",
        least=1,
        most=253,
        # A path upward is not allowed: the text is a file's name, and a Secret has no such key
        # either.
        pattern=r"\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*",
        example="access-key",
        is_required=True,
    ),
    is_required=True,
)
_ENV = _object(
    "",
    "One variable of the workers' environment: `value`, or `valueFrom`.",
    _text(
        "name",
        "Its name.",
        least=1,
        most=253,
        pattern="[A-Za-z_][A-Za-z0-9_]*",
        example="NCCL_DEBUG",
        is_required=True,
    ),
    _text("value", "Its value, which everybody can read who may read the object."),
    _object("valueFrom", "Where its value comes from.", _SECRET_KEY),
)

SPEC = _object(
    "spec",
    "What to run, on how many nodes, and what it survives.",
    _text(
        "script",
        "A Python file, run as `python FILE ARGS`. Of `script`, `module` and `command` one must be "
        "given.",
        least=1,
        most=PATH_LIMIT,
        example="train.py",
    ),
    _text(
        "module",
        "A Python module, run as `python -m MODULE ARGS`.",
        least=1,
        most=PATH_LIMIT,
        pattern=r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*",
        example="team.train",
    ),
    _list("command", "Any program, and its first arguments.", _WORD, 64, least=1),
    Field(
        name="files",
        form=Form.MAP,
        meaning="Files by their names, which may have folders (`lib/model.py`). They lie in the "
        "folder where the workers start, and can be executed if they begin with `#!`. Of 900 KiB "
        "together: for larger ones take an image or a volume.",
        most=64,
        items=_text("", "What stands in the file, in UTF-8.", most=FILES_LIMIT_BYTES),
    ),
    _list("args", "Arguments of the script, module or command.", _WORD, 256),
    _list("env", "Variables of the workers' environment.", _ENV, 128),
    _text(
        "python",
        "Another interpreter for `script` or `module`, by its path in the agents' image. Its "
        "workers are not forked from a warm pool.",
        "the agent's own",
        least=1,
        most=PATH_LIMIT,
        pattern="/.*",
        example="/opt/venv/bin/python",
    ),
    _text(
        "workingDir",
        "The folder in the agents' pods where the workers start.",
        "the agent's; with `files` where those lie",
        least=1,
        most=PATH_LIMIT,
        pattern="/.*",
        example="/workspace",
    ),
    _list(
        "preload",
        "What is imported once, before workers are forked: what the script was seen to load "
        "(`auto`, also where this is empty), torch alone (`none`), or these modules.",
        _text("", "A module.", least=1, most=256),
        64,
    ),
    _object(
        "nodes",
        "How many nodes the job may have.",
        _whole("min", "With fewer it waits.", "1", least=1, most=NODES_LIMIT),
        _whole("max", "More than these are spares.", "`min`", least=1, most=NODES_LIMIT),
    ),
    _whole(
        "replicas",
        "The number of nodes that is wished for, between `nodes.min` and `nodes.max`: what "
        "`kubectl scale` and an autoscaler of Kubernetes write. With `autoscale` it shows what "
        "elasticd's autoscaler wants, and an edit is undone.",
        "`nodes.max`, filled in by the operator",
        least=1,
        most=NODES_LIMIT,
        is_fixed=False,
    ),
    _whole(
        "slotsPerNode",
        "Workers on each node; 0: as many as each node's agent offers.",
        "1",
        least=0,
        most=1024,
    ),
    _object(
        "checkpoint",
        "Where the state is saved and gone on from. Without it nothing is saved.",
        _text(
            "url",
            "A folder that all nodes have, or a bucket (`s3://`, `gs://`, `abfs://`). No secrets.",
            least=1,
            most=PATH_LIMIT,
            pattern="(/|[a-z0-9]+://).*",
            example="s3://bucket/folder",
            is_required=True,
        ),
        _text(
            "every",
            "How often: a time (`60s`, `5m`, `1h`) or a number of steps (`100steps`); `1steps`: "
            "every step, in memory.",
            "60s",
            least=1,
            most=32,
            example="100steps",
        ),
        _text(
            "uploadEvery",
            "With `every: 1steps`, which holds each step in memory: how often one of them is "
            "uploaded, a time.",
            "60s",
            least=1,
            most=32,
            example="5m",
        ),
        _text(
            "mirrorBandwidth",
            "What a node sends of snapshots of a sharded state to the next node at most, in bytes "
            "per second (`200MB/s`, `1GiB/s`).",
            "no limit",
            least=1,
            most=32,
            pattern=r"[0-9]{1,15}(\.[0-9]{1,9})? ?([KMGT]i?)?B/s",
            example="200MB/s",
        ),
        _whole("keep", "Keep so many of the newest; 0: all.", "3", least=0, most=1_000_000),
        _whole(
            "keepEverySteps",
            "Keep one for each so many steps too; 0: none.",
            "0",
            least=0,
            most=1_000_000_000,
        ),
        _text("copy", "How memory is copied.", "auto", words=("auto", "blocking", "overlapped")),
        _seconds("timeoutSeconds", "How long a request that fails is tried again.", "120"),
        Field(
            name="options",
            form=Form.FREE,
            meaning="Options of the URL's fsspec file system; a secret as `env:NAME` or "
            "`file:PATH` of the agents' pods. At most 8 levels deep.",
        ),
    ),
    _object(
        "limits",
        "What it survives before it fails.",
        _whole(
            "maxRestarts",
            "Restarts for errors of the script; whole again after ten minutes without one.",
            "3",
            least=0,
            most=1_000_000,
        ),
        _whole(
            "maxNodeLosses",
            "Restarts for lost nodes and killed workers; -1: any number.",
            "100",
            least=-1,
            most=1_000_000,
        ),
    ),
    _object(
        "timeouts",
        "Times, in seconds.",
        _seconds("shutdownSeconds", "SIGTERM to SIGKILL on a planned stop.", "30"),
        _seconds(
            "formationSeconds", "Until a node that does not start its workers is left out.", "60", 1
        ),
        _seconds("joinWindowSeconds", "Joins this close together become one change.", "0.2"),
        _seconds(
            "isolationSeconds", "Workers of a node without etcd are stopped after this.", "60"
        ),
        _seconds(
            "progressSeconds",
            "In-process mode: without progress for so long, outside `state.pause`, a worker hangs; "
            "0: no limit; a frozen worker is found all the same.",
            "60",
        ),
        _seconds(
            "outputSeconds",
            "Restart mode: with no output of any rank for so long they are taken for hung; 0: "
            "never, else at least 5.",
            "0",
        ),
    ),
    _object(
        "autoscale",
        "elasticd's autoscaler gives the job its size.",
        _text(
            "policy",
            "The text of a policy file (TOML).",
            least=1,
            most=65_536,
            is_required=True,
            is_fixed=False,
        ),
        is_fixed=False,
    ),
    Field(
        name="nodeSelector",
        form=Form.MAP,
        meaning="Only nodes that have all of these labels take part: in Kubernetes, or by "
        "`--label` or `ELASTICD_LABELS` of their agents, which come first.",
        most=64,
        items=_text("", "The label's value.", most=63),
    ),
    _whole(
        "priority",
        "Of jobs that wait for the same slots the highest is served first, of equals the one "
        "submitted first; none that runs is sent away.",
        "0",
        least=-2_147_483_648,
        most=2_147_483_647,
    ),
    _whole(
        "activeDeadlineSeconds",
        "The job is stopped, and counts as failed, so many seconds after it was submitted.",
        "no limit",
        least=1,
        most=2_147_483_647,
        is_fixed=False,
    ),
    _whole(
        "ttlSecondsAfterFinished",
        "The object of a job that is over is deleted after so many seconds.",
        "it stays",
        least=0,
        most=2_147_483_647,
        is_fixed=False,
    ),
    is_required=True,
)


def all_fields(of: Field = SPEC, path: str = "spec") -> Iterator[tuple[str, Field]]:
    """Yield the fields of an object, and of the objects in it, with their paths."""
    for each in of.fields:
        here = f"{path}.{each.name}"
        yield here, each
        inner = each.items if each.items is not None and each.items.fields else each
        yield from all_fields(inner, f"{here}[]" if inner is not each else here)


def field_of(path: str) -> Field:
    """Return the field at a path.

    Raises: KeyError: there is no such field.
    """
    return dict(all_fields())[path]

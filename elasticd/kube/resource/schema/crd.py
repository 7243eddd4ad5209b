"""The CustomResourceDefinition of ElasticJob, made of the tables of fields and rules.

The schema is structural. An older CRD drops fields of a newer version, as Kubernetes does. Servers
before 1.25 drop `x-kubernetes-validations`, and the operator checks the same rules itself.
"""

from typing import Any

from elasticd.kube.resource.name import GROUP, KIND, PART_OF, PART_OF_LABEL, PLURAL, SHORT_NAME
from elasticd.kube.resource.name import VERSION as VERSION_NAME
from elasticd.kube.resource.schema.field import SPEC, Field, Form
from elasticd.kube.resource.schema.rule import RULES

__all__ = ["crd"]

_COLUMNS = (
    ("Phase", "string", ".status.phase", 0),
    ("Nodes", "string", ".status.size", 0),
    ("Generation", "integer", ".status.generation", 0),
    ("Step", "integer", ".status.step", 0),
    ("Steps/s", "number", ".status.stepsPerSecond", 0),
    ("Goodput", "number", ".status.goodput", 0),
    ("Checkpoint", "date", ".status.checkpoint.time", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Job", "string", ".status.job", 1),
    ("Message", "string", ".status.message", 1),
)
"""The columns of `kubectl get ej`; those of priority 1 appear with `-o wide`."""

_CONDITION = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {
        "type": {"type": "string", "maxLength": 316},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {"type": "string", "maxLength": 1024},
        "message": {"type": "string", "maxLength": 32768},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer", "format": "int64"},
    },
}
_STATUS: dict[str, dict[str, Any]] = {
    "observedGeneration": {"type": "integer", "format": "int64"},
    "job": {"type": "string", "description": "The job's name in etcd."},
    "phase": {"type": "string", "description": "Where the job stands, in one word."},
    "message": {"type": "string", "description": "One sentence about it."},
    "size": {"type": "string", "description": "Nodes of the world, of those that are wanted."},
    "nodes": {"type": "integer", "format": "int32"},
    "wanted": {"type": "integer", "format": "int32"},
    "generation": {"type": "integer", "format": "int64", "description": "Number of the world."},
    "step": {"type": "integer", "format": "int64", "description": "Applied steps."},
    "stepsPerSecond": {"type": "number"},
    "goodput": {"type": "number", "description": "Share of the slots' time that trained."},
    "lossesByReason": {
        "type": "object",
        "description": "Changes of world that nobody planned.",
        "additionalProperties": {"type": "integer", "format": "int32"},
    },
    "checkpoint": {
        "type": "object",
        "description": "The newest durable checkpoint.",
        "properties": {
            "step": {"type": "integer", "format": "int64"},
            "time": {"type": "string", "format": "date-time"},
        },
    },
    "replicas": {"type": "integer", "format": "int32", "description": "As nodes, for /scale."},
    "selector": {"type": "string", "description": "A label selector, for /scale."},
    "startTime": {"type": "string", "format": "date-time"},
    "completionTime": {"type": "string", "format": "date-time"},
    "conditions": {
        "type": "array",
        "items": _CONDITION,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    },
}


def crd(*, has_cel: bool = True) -> dict[str, Any]:
    """Return the definition in the API's form; `has_cel` is False for servers before 1.25."""
    spec = _schema(SPEC)
    if has_cel:
        spec["x-kubernetes-validations"] = [
            {"rule": rule.cel, "message": rule.sentence} for rule in RULES
        ]
    schema = {
        "type": "object",
        "description": "A training job of elasticd, which goes on while nodes come and go.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {"type": "object", "properties": _STATUS},
        },
    }
    version = {
        "name": VERSION_NAME,
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "priority": priority}
            for name, kind, path, priority in _COLUMNS
        ],
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}", "labels": {PART_OF_LABEL: PART_OF}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": [SHORT_NAME],
                "categories": ["all"],
            },
            "versions": [version],
        },
    }


# --- private ----------------------------------------------------------------------------------


def _schema(field: Field) -> dict[str, Any]:
    found: dict[str, Any] = {"description": field.meaning, **_FORMS[field.form]}
    if field.default:
        found["description"] += f" Without it: {field.default}."
    lows, highs = _LIMITS[field.form]
    if field.least is not None:
        found[lows] = field.least
    if field.most is not None:
        found[highs] = field.most
    if field.pattern:
        found["pattern"] = f"^({field.pattern})$"
    if field.words:
        found["enum"] = list(field.words)
    if field.items is not None:
        found["items" if field.form is Form.LIST else "additionalProperties"] = _schema(field.items)
    if field.fields:
        found["properties"] = {inner.name: _schema(inner) for inner in field.fields}
    required = [inner.name for inner in field.fields if inner.is_required]
    if required:
        found["required"] = required
    return found


_FORMS: dict[Form, dict[str, Any]] = {
    Form.TEXT: {"type": "string"},
    Form.WHOLE: {"type": "integer", "format": "int64"},
    Form.NUMBER: {"type": "number"},
    Form.LIST: {"type": "array"},
    Form.MAP: {"type": "object"},
    Form.OBJECT: {"type": "object"},
    Form.FREE: {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
_LIMITS: dict[Form, tuple[str, str]] = {
    Form.TEXT: ("minLength", "maxLength"),
    Form.WHOLE: ("minimum", "maximum"),
    Form.NUMBER: ("minimum", "maximum"),
    Form.LIST: ("minItems", "maxItems"),
    Form.MAP: ("minProperties", "maxProperties"),
    Form.OBJECT: ("minProperties", "maxProperties"),
    Form.FREE: ("minProperties", "maxProperties"),
}

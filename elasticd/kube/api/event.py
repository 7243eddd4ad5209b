"""Events of Kubernetes, which `kubectl describe` shows below an object.

An event's name is derived from its content. So an event that happens again is the same object with
a higher count, even if another operator wrote it first. The API server forgets events after an
hour.
"""

import hashlib
from datetime import UTC, datetime

from elasticd.kube.api.port import FIELD_MANAGER, EventNote, Name, Object, ResourceKind, name_of
from elasticd.kube.resource.name import shortened
from elasticd.kube.resource.plain_text import plain_text

__all__ = ["EVENTS", "event_body", "event_name", "now_text"]

EVENTS = ResourceKind(group="", version="v1", kind="Event", plural="events")
MESSAGE_LIMIT = 1024
"""The size limit of a message, in bytes; the API server refuses a longer one."""
NAME_LIMIT = 230
"""The largest length of an object's name inside an event's name, which may have 253 characters; a
longer name is shortened."""


def now_text() -> str:
    """Return the present time in the API's format."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def event_name(event: EventNote) -> Name:
    """Return the event's name, which is the same for every writer."""
    about = name_of(event.about)
    uid = (event.about.get("metadata") or {}).get("uid", "")
    said = "\0".join((str(uid), event.type, event.reason, plain_text(event.message)))
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    return Name(about.namespace or "default", f"{shortened(about.name, NAME_LIMIT)}.{digest}")


def event_body(event: EventNote, count: int, *, now: str = "") -> Object:
    """Return the event as an object; `now` is the time of the event, in the API's format."""
    name, about = event_name(event), event.about
    metadata = about.get("metadata") or {}
    at = now or now_text()
    involved = {
        "apiVersion": about.get("apiVersion", ""),
        "kind": about.get("kind", ""),
        "name": metadata.get("name", ""),
        "namespace": metadata.get("namespace", ""),
        "uid": metadata.get("uid", ""),
    }
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": name.name, "namespace": name.namespace},
        "involvedObject": {key: value for key, value in involved.items() if value},
        "type": str(event.type),
        "reason": event.reason,
        "message": _message(event),
        "count": count,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": "",
    }


# --- private ----------------------------------------------------------------------------------


def _message(event: EventNote) -> str:
    """Return the message, cut after the last whole character that fits."""
    return plain_text(event.message).encode()[:MESSAGE_LIMIT].decode(errors="ignore")

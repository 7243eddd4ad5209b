"""What every `Api` does: the one in memory, and the one over HTTP.

`tests/kube` runs these tests on a real API server too, so they use nothing that only a twin has.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from elasticd.errors import Fenced, NotFound, Refused
from elasticd.kube.api.event import EVENTS
from elasticd.kube.api.port import (
    ELASTIC_JOBS,
    NODES,
    PODS,
    Changed,
    EventNote,
    EventType,
    Name,
    Object,
    ResourceList,
    name_of,
)
from tests.fixtures.kube_backend import KubeBackend
from tests.fixtures.store import wait_until

Change = tuple[str, Any]


class Seen:
    """A sink that keeps what it was told."""

    def __init__(self, act: Callable[[ResourceList | Changed], None] = lambda event: None) -> None:
        self.events: list[ResourceList | Changed] = []
        self.act = act

    def __call__(self, event: ResourceList | Changed) -> None:
        self.events.append(event)
        self.act(event)

    @property
    def listings(self) -> list[ResourceList]:
        return [event for event in self.events if isinstance(event, ResourceList)]

    @property
    def known(self) -> dict[str, Object]:
        """What stands, as the events tell it."""
        found: dict[str, Object] = {}
        for event in list(self.events):
            if isinstance(event, ResourceList):
                found = {item["metadata"]["name"]: item for item in event.items}
            elif event.item is None:
                found.pop(event.name.name, None)
            else:
                found[event.name.name] = event.item
        return found


def job(kube: KubeBackend, name: str = "a", **metadata: object) -> Object:
    return {
        "apiVersion": ELASTIC_JOBS.api_version,
        "kind": ELASTIC_JOBS.kind,
        "metadata": {"name": name, "namespace": kube.namespace, **metadata},
        "spec": {"script": "train.py", "nodes": {"min": 1, "max": 3}},
    }


def key(kube: KubeBackend, name: str = "a") -> Name:
    return Name(kube.namespace, name)


@pytest.fixture
def watch(kube: KubeBackend) -> Iterator[Callable[..., Seen]]:
    """Watches the jobs of the test's namespace until the test ends."""
    watches = []

    def begin(
        labels: str = "", act: Callable[[ResourceList | Changed], None] | None = None
    ) -> Seen:
        seen = Seen(act) if act is not None else Seen()
        made = kube.api.watch(ELASTIC_JOBS, seen, namespace=kube.namespace, labels=labels)
        watches.append(made)
        wait_until(lambda: bool(seen.events))
        return seen

    yield begin
    for each in watches:
        each.close()


# --- watching ---------------------------------------------------------------------------------


def test_a_watch_begins_with_a_listing_and_goes_on_with_changes(
    kube: KubeBackend, watch: Callable[..., Seen]
) -> None:
    """Also of an object that is deleted."""
    kube.create(ELASTIC_JOBS, job(kube, "a"))
    seen = watch()
    assert isinstance(seen.events[0], ResourceList) and set(seen.known) == {"a"}
    assert seen.known["a"]["kind"] == "ElasticJob"
    made = kube.create(ELASTIC_JOBS, job(kube, "b"))
    wait_until(lambda: set(seen.known) == {"a", "b"})
    kube.change(ELASTIC_JOBS, key(kube, "a"), {"spec": {"replicas": 2}})
    wait_until(lambda: seen.known["a"]["spec"].get("replicas") == 2)
    kube.api.delete(ELASTIC_JOBS, made)
    wait_until(lambda: set(seen.known) == {"a"})


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_watch_that_was_cut_misses_nothing(
    kube: KubeBackend, watch: Callable[..., Seen], is_compacted: bool
) -> None:
    """It goes on where it was, or begins again with a listing where that is forgotten (410)."""
    kube.create(ELASTIC_JOBS, job(kube, "a"))
    gone = kube.create(ELASTIC_JOBS, job(kube, "b"))
    seen = watch()

    def act() -> None:
        kube.change(ELASTIC_JOBS, key(kube, "a"), {"spec": {"replicas": 3}})
        kube.change(ELASTIC_JOBS, key(kube, "b"), {"metadata": {"finalizers": None}})
        kube.create(ELASTIC_JOBS, job(kube, "c"))

    kube.away(act, is_compacted=is_compacted)
    kube.api.delete(ELASTIC_JOBS, gone)
    wait_until(lambda: set(seen.known) == {"a", "c"})
    assert seen.known["a"]["spec"]["replicas"] == 3
    if is_compacted:
        assert len(seen.listings) > 1


def test_a_sink_that_raises_begins_again_with_a_listing(
    kube: KubeBackend, watch: Callable[..., Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it made of the change is replaced, and the watch lives on."""
    monkeypatch.setattr("threading.excepthook", lambda args: None)
    has_raised: list[Changed] = []

    def act(event: ResourceList | Changed) -> None:
        if isinstance(event, Changed) and not has_raised:
            has_raised.append(event)
            raise ValueError

    seen = watch(act=act)
    kube.create(ELASTIC_JOBS, job(kube, "a"))
    wait_until(lambda: len(seen.listings) > 1 and set(seen.known) == {"a"})
    kube.create(ELASTIC_JOBS, job(kube, "b"))
    wait_until(lambda: set(seen.known) == {"a", "b"})


def test_an_object_that_loses_its_label_is_gone_for_who_watches_that(
    kube: KubeBackend, watch: Callable[..., Seen]
) -> None:
    """And one without it was never there."""
    kube.create(ELASTIC_JOBS, job(kube, "a", labels={"x": "1", "y": "2"}))
    kube.create(ELASTIC_JOBS, job(kube, "b", labels={"x": "2"}))
    seen = watch(labels="x=1")
    assert set(seen.known) == {"a"}
    kube.change(ELASTIC_JOBS, key(kube, "b"), {"metadata": {"labels": {"x": "1"}}})
    kube.change(ELASTIC_JOBS, key(kube, "a"), {"metadata": {"labels": {"x": None}}})
    wait_until(lambda: set(seen.known) == {"b"})


def test_a_watch_that_is_closed_tells_nothing_more(kube: KubeBackend) -> None:
    """From the moment at which `close` returns."""
    seen = Seen()
    other = Seen()
    watch = kube.api.watch(ELASTIC_JOBS, seen, namespace=kube.namespace)
    standing = kube.api.watch(ELASTIC_JOBS, other, namespace=kube.namespace)
    wait_until(lambda: bool(seen.events and other.events))
    watch.close()
    kube.create(ELASTIC_JOBS, job(kube))
    wait_until(lambda: bool(other.known))
    standing.close()
    assert not seen.known


def test_kinds_without_a_namespace_are_listed(kube: KubeBackend) -> None:
    """Nodes have none; pods of other namespaces are not in a listing of one."""
    name = f"n-{kube.namespace}"
    kube.create(NODES, {"metadata": {"name": name}})
    listed = kube.api.list(NODES)
    assert name in {name_of(item).name for item in listed.items} and listed.version
    assert [name_of(item).name for item in kube.api.list(NODES, name=name).items] == [name]
    assert kube.api.list(NODES, name=f"{name}-other").items == ()
    assert kube.api.list(PODS, namespace=kube.namespace).items == ()
    uid = next(i for i in listed.items if name_of(i).name == name)["metadata"]["uid"]
    # Without a version: a real server's own controllers write to a node at any moment.
    kube.api.delete(NODES, {"metadata": {"name": name, "uid": uid}})
    assert kube.get(NODES, Name("", name)) is None


# --- writing ----------------------------------------------------------------------------------


def status_of(kube: KubeBackend, name: str = "a", **status: object) -> Object:
    return {"metadata": {"name": name, "namespace": kube.namespace}, "status": status}


def test_spec_and_status_do_not_touch_each_other(kube: KubeBackend) -> None:
    """A status is no new generation of the spec; a spec is one."""
    made = kube.create(ELASTIC_JOBS, job(kube))
    generation = made["metadata"]["generation"]
    wrong = {**status_of(kube, generation=7), "spec": {"script": "other.py"}}
    after = kube.api.apply(ELASTIC_JOBS, wrong, subresource="status")
    assert after["spec"] == made["spec"] and after["status"] == {"generation": 7}
    assert after["metadata"]["generation"] == generation
    spec = {**status_of(kube, generation=9), "spec": {"replicas": 2}}
    after = kube.api.apply(ELASTIC_JOBS, spec)
    assert after["status"] == {"generation": 7}
    assert after["spec"] == {**made["spec"], "replicas": 2}
    assert after["metadata"]["generation"] == generation + 1


@pytest.mark.parametrize(
    "text", ["\U0001f525 on fire", "\x7f\x85\ufeff\u2028", '"\\ud83d" \\', "\t\n", "h\u00e9 \u6f22"]
)
def test_any_text_may_be_applied(kube: KubeBackend, text: str) -> None:
    """What is applied is read as YAML, which has not all of JSON's escapes."""
    kube.create(ELASTIC_JOBS, job(kube))
    found = kube.api.apply(ELASTIC_JOBS, status_of(kube, phase=text), subresource="status")
    assert found["status"] == {"phase": text}


def test_what_is_applied_again_changes_nothing(kube: KubeBackend) -> None:
    """Its version stays, and no watch hears of it."""
    kube.create(ELASTIC_JOBS, job(kube))
    once = kube.api.apply(ELASTIC_JOBS, status_of(kube, phase="running"), subresource="status")
    again = kube.api.apply(ELASTIC_JOBS, status_of(kube, phase="running"), subresource="status")
    assert once["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]


def test_a_field_that_is_not_applied_any_more_is_removed(kube: KubeBackend) -> None:
    """One that somebody else set stays."""
    kube.create(ELASTIC_JOBS, job(kube))
    whole = status_of(kube, phase="running", generation=7, job="x")
    kube.api.apply(ELASTIC_JOBS, whole, subresource="status")
    less = kube.api.apply(ELASTIC_JOBS, status_of(kube, phase="done"), subresource="status")
    assert less["status"] == {"phase": "done"}
    assert less["spec"]["script"] == "train.py"


def test_conditions_are_merged_by_their_types(kube: KubeBackend) -> None:
    """One of another writer stays; one of ours that is not applied any more goes."""
    kube.create(ELASTIC_JOBS, job(kube))

    def condition(kind: str, status: str) -> dict[str, str]:
        at = "2026-01-01T00:00:00Z"
        return {
            "type": kind,
            "status": status,
            "reason": "Because",
            "message": "As the world is.",
            "lastTransitionTime": at,
        }

    both = status_of(kube, conditions=[condition("Running", "True"), condition("Waiting", "False")])
    kube.api.apply(ELASTIC_JOBS, both, subresource="status")
    one = status_of(kube, conditions=[condition("Running", "False")])
    after = kube.api.apply(ELASTIC_JOBS, one, subresource="status")
    assert after["status"]["conditions"] == [condition("Running", "False")]


def test_an_object_that_is_gone_is_not_made_again_by_what_is_applied(kube: KubeBackend) -> None:
    """With the uid of the object that was meant; nor, with its version, another one changed."""
    made = kube.create(ELASTIC_JOBS, job(kube))
    kube.api.delete(ELASTIC_JOBS, made)
    metadata = {**status_of(kube)["metadata"], "uid": made["metadata"]["uid"]}
    metadata["resourceVersion"] = made["metadata"]["resourceVersion"]
    spec = {"metadata": metadata, "spec": {"replicas": 2}}
    with pytest.raises(Fenced):
        kube.api.apply(ELASTIC_JOBS, spec)
    with pytest.raises(NotFound):
        kube.api.apply(ELASTIC_JOBS, status_of(kube, phase="x"), subresource="status")
    assert kube.get(ELASTIC_JOBS, key(kube)) is None
    kube.create(ELASTIC_JOBS, job(kube))
    for body, subresource in ((spec, ""), ({**spec, "status": {"phase": "x"}}, "status")):
        with pytest.raises((Fenced, Refused)):
            kube.api.apply(ELASTIC_JOBS, body, subresource=subresource)
    assert (kube.get(ELASTIC_JOBS, key(kube)) or {})["spec"] == job(kube)["spec"]


def test_a_patch_holds_only_for_what_was_seen(kube: KubeBackend) -> None:
    """A list of several owners is not overwritten with an old one."""
    seen = kube.create(ELASTIC_JOBS, job(kube))
    kube.change(ELASTIC_JOBS, key(kube), {"metadata": {"finalizers": ["others.dev/x"]}})
    with pytest.raises(Fenced):
        kube.api.patch(ELASTIC_JOBS, seen, {"metadata": {"finalizers": ["elasticd.dev/job"]}})
    found = kube.get(ELASTIC_JOBS, key(kube))
    assert found is not None and found["metadata"]["finalizers"] == ["others.dev/x"]
    kube.api.patch(ELASTIC_JOBS, found, {"metadata": {"finalizers": None}})


def test_a_finalizer_keeps_a_deleted_object_until_it_is_removed(
    kube: KubeBackend, watch: Callable[..., Seen]
) -> None:
    """Meanwhile everybody sees that it is to go."""
    made = kube.create(ELASTIC_JOBS, job(kube))
    seen = watch()
    kept = kube.api.patch(ELASTIC_JOBS, made, {"metadata": {"finalizers": ["elasticd.dev/job"]}})
    kube.api.delete(ELASTIC_JOBS, kept)
    wait_until(lambda: "deletionTimestamp" in seen.known["a"]["metadata"])
    kube.api.patch(ELASTIC_JOBS, seen.known["a"], {"metadata": {"finalizers": None}})
    wait_until(lambda: not seen.known)


def test_another_object_of_the_same_name_is_not_deleted(kube: KubeBackend) -> None:
    """Nor is it an error that ours is gone already."""
    made = kube.create(ELASTIC_JOBS, job(kube))
    kube.api.delete(ELASTIC_JOBS, made)
    kube.api.delete(ELASTIC_JOBS, made)
    other = kube.create(ELASTIC_JOBS, job(kube))
    kube.api.delete(ELASTIC_JOBS, made)
    found = kube.get(ELASTIC_JOBS, key(kube))
    assert found is not None and found["metadata"]["uid"] == other["metadata"]["uid"]


def test_object_that_was_changed_meanwhile_is_not_deleted(kube: KubeBackend) -> None:
    """Whoever changed it may want to keep it, as with a later end of its time to live."""
    seen = kube.create(ELASTIC_JOBS, job(kube))
    found = kube.change(ELASTIC_JOBS, key(kube), {"spec": {"replicas": 3}})
    with pytest.raises(Fenced):
        kube.api.delete(ELASTIC_JOBS, seen)
    assert kube.get(ELASTIC_JOBS, key(kube)) is not None
    kube.api.delete(ELASTIC_JOBS, found)
    assert kube.get(ELASTIC_JOBS, key(kube)) is None


def test_scale_sets_the_replicas(kube: KubeBackend) -> None:
    """As long as the object is as it was seen."""
    kube.create(ELASTIC_JOBS, job(kube))
    seen = kube.change(ELASTIC_JOBS, key(kube), {"spec": {"replicas": 3}})
    scale = kube.api.patch(ELASTIC_JOBS, seen, {"spec": {"replicas": 2}}, subresource="scale")
    assert scale["spec"]["replicas"] == 2
    assert (kube.get(ELASTIC_JOBS, key(kube)) or {})["spec"]["replicas"] == 2
    with pytest.raises(Fenced):
        kube.api.patch(ELASTIC_JOBS, seen, {"spec": {"replicas": 1}}, subresource="scale")


def test_an_event_that_comes_again_is_counted(kube: KubeBackend) -> None:
    """One object, as `kubectl describe` shows it; another message is another event."""
    about = kube.create(ELASTIC_JOBS, job(kube))
    for message in ("3 nodes train", "3 nodes train", "2 nodes train"):
        kube.api.note(
            EventNote(about=about, type=EventType.NORMAL, reason="World", message=message)
        )
    events = kube.api.list(EVENTS, namespace=kube.namespace).items
    assert sorted((event["message"], event["count"]) for event in events) == [
        ("2 nodes train", 1),
        ("3 nodes train", 2),
    ]
    assert {event["involvedObject"]["uid"] for event in events} == {about["metadata"]["uid"]}

"""The objects of the API as dataclasses, and back."""

from typing import Any

import pytest

from elasticd.kube.resource.elastic_job import elastic_job
from elasticd.kube.resource.json_form import api_name, from_json, to_json
from elasticd.kube.resource.spec import NodesField
from elasticd.kube.resource.status import ElasticJobStatus, status_json

GIVEN: dict[str, Any] = {
    "script": "train.py",
    "args": ["--lr", "0.1"],
    "env": [
        {"name": "MODE", "value": ""},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "id"}}},
    ],
    "nodes": {"min": 1, "max": 4},
    "slotsPerNode": 2,
    "timeouts": {"shutdownSeconds": 5, "joinWindowSeconds": 0.5},
    "checkpoint": {"url": "s3://b/c", "keepEverySteps": 10, "options": {"a": {"b": [1]}}},
    "ttlSecondsAfterFinished": 60,
}
META: dict[str, Any] = {"namespace": "team", "name": "x", "uid": "u1", "generation": 3}


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("script", "script"),
        ("slots_per_node", "slotsPerNode"),
        ("shutdown_s", "shutdownSeconds"),
        ("join_window_s", "joinWindowSeconds"),
        ("ttl_seconds_after_finished", "ttlSecondsAfterFinished"),
        ("args", "args"),
    ],
)
def test_fields_have_the_names_of_the_api(name: str, spelled: str) -> None:
    assert api_name(name) == spelled


def test_a_spec_is_read_and_written_as_it_was() -> None:
    job = elastic_job({"metadata": META, "spec": GIVEN})
    assert job.spec is not None and not job.wrong
    assert job.spec.timeouts.shutdown_s == 5 and job.spec.timeouts.formation_s == 60
    assert to_json(job.spec.env[1]) == GIVEN["env"][1]
    assert job.spec.checkpoint is not None and job.spec.checkpoint.options == {"a": {"b": [1]}}
    written = to_json(job.spec)
    assert {key: written[key] for key in GIVEN if key not in ("timeouts", "checkpoint", "env")} == {
        key: GIVEN[key] for key in GIVEN if key not in ("timeouts", "checkpoint", "env")
    }


def test_what_a_newer_version_wrote_is_kept() -> None:
    job = elastic_job({"metadata": META, "spec": {**GIVEN, "queue": {"name": "a"}}})
    assert job.spec is not None
    assert job.spec.unknown == {"queue": {"name": "a"}}
    assert to_json(job.spec)["queue"] == {"name": "a"}


@pytest.mark.parametrize("given", [None, [], "x", {"nodes": 3}, {"args": "a b"}, {"env": [{}]}])
def test_a_spec_without_its_form_is_said_to_be_one(given: Any) -> None:
    job = elastic_job({"metadata": META, "spec": given})
    assert job.spec is None
    assert job.wrong.startswith("spec") and job.wrong.endswith(".")
    assert job.key.uid == "u1"


def test_null_is_what_was_not_set() -> None:
    job = elastic_job(
        {"metadata": META, "spec": {"script": "a.py", "replicas": None, "args": None}}
    )
    assert job.spec is not None and job.spec.replicas is None and job.spec.args == ()


@pytest.mark.parametrize(
    ("nodes", "least", "most"),
    [
        (NodesField(), 1, 1),
        (NodesField(min=2), 2, 2),
        (NodesField(max=3), 1, 3),
        (NodesField(min=1, max=4), 1, 4),
    ],
)
def test_a_job_has_one_node_at_least_and_no_more_than_that_unless_said(
    nodes: Any, least: int, most: int
) -> None:
    job = elastic_job({"metadata": META, "spec": {"script": "a.py", "nodes": to_json(nodes)}})
    assert job.spec is not None and (job.spec.min_nodes, job.spec.max_nodes) == (least, most)


def test_a_status_that_makes_no_sense_is_written_anew() -> None:
    job = elastic_job({"metadata": META, "spec": GIVEN, "status": {"nodes": "many"}})
    assert job.status == ElasticJobStatus()


def test_zero_is_a_value_of_a_status() -> None:
    plain = status_json(ElasticJobStatus(phase="Pending", replicas=0, step=0))
    assert plain["replicas"] == 0 and plain["step"] == 0
    assert "goodput" not in plain and "conditions" not in plain
    assert from_json(ElasticJobStatus, plain) == ElasticJobStatus(phase="Pending", step=0)


def test_metadata_is_read() -> None:
    job = elastic_job(
        {
            "metadata": {
                **META,
                "creationTimestamp": "2026-11-23T10:00:00Z",
                "deletionTimestamp": "2026-11-23T10:00:05Z",
                "finalizers": ["a/b"],
                "annotations": {"k": "v"},
                "resourceVersion": "77",
            },
            "spec": GIVEN,
        }
    )
    assert job.deleted_unix_s == job.created_unix_s + 5
    assert (job.finalizers, job.annotations, job.resource_version) == (("a/b",), {"k": "v"}, "77")
    assert str(job.key) == "team/x"


def test_an_object_without_a_name_is_none() -> None:
    with pytest.raises(ValueError, match=r"no metadata\.name"):
        elastic_job({"metadata": {}})

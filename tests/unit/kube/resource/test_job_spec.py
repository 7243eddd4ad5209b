"""An object as the JobSpec that elasticd runs."""

import random
from dataclasses import replace
from typing import Any

import pytest

from elasticd.cli.run.request import parse
from elasticd.kube.resource.elastic_job import ElasticJob, elastic_job
from elasticd.kube.resource.job_spec import changed_fields, has_policy_of, job_spec, policy_of
from elasticd.kube.resource.schema.field import FILES_LIMIT_BYTES
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec

NAME = JobName("team.x")
POLICY = '[target]\nmetrics = [{name = "q", query = "sum(q)", load = 5}]\n'


def made(**spec: Any) -> ElasticJob:
    job = elastic_job({"metadata": {"namespace": "team", "name": "x", "uid": "u1"}, "spec": spec})
    assert not job.wrong
    return job


FULL: dict[str, Any] = {
    "script": "train.py",
    "args": ["--lr", "0.1"],
    "preload": ["numpy"],
    "nodes": {"min": 2, "max": 4},
    "slotsPerNode": 8,
    "nodeSelector": {"gpu": "h100"},
    "limits": {"maxRestarts": 1},
    "env": [
        {"name": "A", "value": "1"},
        {"name": "E"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "id"}}},
    ],
    "checkpoint": {"url": "s3://b/c/", "every": "5m", "keep": 2, "options": {"a": [1, {"b": 2}]}},
    "timeouts": {"shutdownSeconds": 2, "progressSeconds": 0},
    "files": {"train.py": "pass\n"},
}


def test_what_is_not_said_is_as_of_the_command_line() -> None:
    """One default each, wherever a job is submitted."""
    bare = job_spec(made(script="train.py"), NAME, cluster="c")
    request = parse(["--etcd", "http://h:1", "train.py"], {})
    other = request.spec(name=NAME, uid="u1", here="")
    own = {name: getattr(bare, name) for name in ("submitted_by", "owner")}
    assert bare == replace(other, cwd="", **own)


def test_every_field_goes_into_the_job() -> None:
    found = job_spec(made(**FULL), NAME, cluster="c", now_unix_s=7.0)
    assert (found.entry_kind, found.entry, found.args) == (
        EntryKind.SCRIPT,
        "train.py",
        ("--lr", "0.1"),
    )
    assert (found.min_nodes, found.max_nodes, found.workers_per_node) == (2, 4, 8)
    assert found.node_labels == {"gpu": "h100"}
    assert (found.preload, found.files) == (("numpy",), {"train.py": "pass\n"})
    assert job_spec(made(script="a.py", workingDir="/w"), NAME).cwd == "/w"
    assert found.env == {"A": "1", "E": ""}
    assert found.env_files == {"B": "/var/run/secrets/elasticd.dev/s3/id"}
    assert (found.limits.user_error, found.limits.node_loss) == (1, 100)
    assert (found.shutdown_timeout_s, found.failure_timeout_s) == (2, 2)
    assert found.progress_timeout_s == 0
    assert found.checkpoint is not None
    assert (found.checkpoint.url, found.checkpoint.owner) == ("s3://b/c", "team.x")
    assert (found.checkpoint.every.seconds, found.checkpoint.keep_last) == (300.0, 2)
    assert (found.checkpoint.upload_every, found.checkpoint.mirror_bytes_per_s) == (None, 0)
    assert (found.owner, found.submitted_at_unix_s) == ("kubernetes/c/team/x", 7.0)
    assert decode(JobSpec, encode(found)) == found


@pytest.mark.parametrize(
    ("spec", "kind", "entry", "args"),
    [
        ({"module": "a.b", "args": ["1"]}, EntryKind.MODULE, "a.b", ("1",)),
        ({"command": ["sh", "-c"], "args": ["x"]}, EntryKind.COMMAND, "sh", ("-c", "x")),
        (
            {"script": "a.py", "python": "/p", "args": ["1"]},
            *(EntryKind.COMMAND, "/p", ("-u", "a.py", "1")),
        ),
        ({"module": "a", "python": "/p"}, EntryKind.COMMAND, "/p", ("-u", "-m", "a")),
    ],
)
def test_what_runs_is_as_of_the_command_line(
    spec: Any, kind: EntryKind, entry: str, args: tuple[str, ...]
) -> None:
    found = job_spec(made(**spec), NAME)
    assert (found.entry_kind, found.entry, found.args) == (kind, entry, args)


@pytest.mark.parametrize(
    ("given", "seconds", "rate"),
    [
        ({}, 60.0, 0),
        ({"uploadEvery": "5m"}, 300.0, 0),
        ({"mirrorBandwidth": "200MB/s"}, 60.0, 200_000_000),
    ],
)
def test_snapshots_of_each_step_are_uploaded_and_sent_as_the_object_says(
    given: dict[str, str], seconds: float, rate: int
) -> None:
    """As by the flags of the command line; what is not said is as before there were the fields."""
    checkpoint = {"url": "s3://b/c", "every": "1steps", **given}
    found = job_spec(made(script="a.py", checkpoint=checkpoint), NAME).checkpoint
    assert found is not None and found.upload_every is not None
    assert (found.upload_every.seconds, found.mirror_bytes_per_s) == (seconds, rate)


def test_checkpoints_are_those_of_the_name_also_of_a_job_that_has_another_one() -> None:
    apart = job_spec(made(**FULL), JobName("team.x-1234abcd"))
    assert apart.checkpoint is not None and apart.checkpoint.owner == "team.x"


def test_what_was_submitted_is_unchanged_after_etcd_and_a_restart() -> None:
    standing = decode(JobSpec, encode(job_spec(made(**FULL), NAME, cluster="c", now_unix_s=7.0)))
    assert changed_fields(made(**FULL), standing) == ()


def test_job_of_an_older_version_that_learned_no_imports_is_unchanged() -> None:
    """Its object names no `preload`, and means something else since."""
    unnamed = made(**{**FULL, "preload": []})
    standing = replace(job_spec(unnamed, NAME), learns_imports=False)
    assert changed_fields(unnamed, standing) == ()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"args": []}, ("spec.args",)),
        ({"script": "/b.py"}, ("spec.script, module or command",)),
        ({"nodes": {"min": 1, "max": 5}}, ("spec.nodes",)),
        ({"env": [], "preload": []}, ("spec.env", "spec.preload")),
        ({"timeouts": {}}, ("spec.timeouts",)),
        ({"limits": {}}, ("spec.limits",)),
        ({"files": {}}, ("spec.files",)),
        ({"checkpoint": {"url": "s3://b/d"}}, ("spec.checkpoint",)),
        ({"slotsPerNode": 1}, ("spec.slotsPerNode",)),
        ({"workingDir": "/v", "files": None}, ("spec.workingDir", "spec.files")),
        ({"replicas": 3, "ttlSecondsAfterFinished": 5, "activeDeadlineSeconds": 9}, ()),
        ({"autoscale": {"policy": POLICY}}, ()),
    ],
)
def test_a_change_of_what_is_fixed_is_named(change: Any, named: Any) -> None:
    assert changed_fields(made(**{**FULL, **change}), job_spec(made(**FULL), NAME)) == named


def test_a_policy_is_known_again_by_its_text() -> None:
    job = made(**{**FULL, "autoscale": {"policy": POLICY}})
    policy = policy_of(job, now_unix_s=5.0)
    assert policy is not None and policy.uid == "u1" and policy.target is not None
    standing = decode(type(policy), encode(policy))
    assert has_policy_of(standing, job)
    other = made(**{**FULL, "autoscale": {"policy": POLICY + "tolerance = 0.2\n"}})
    assert not has_policy_of(standing, other) and not has_policy_of(standing, made(**FULL))
    assert not has_policy_of(None, job) and has_policy_of(None, made(**FULL))
    assert policy_of(made(**FULL), now_unix_s=5.0) is None


@pytest.mark.parametrize("alphabet", ["".join(map(chr, range(1, 128))), "äöüß€ñ漢字"])
def test_the_largest_files_have_room_in_the_record(alphabet: str) -> None:
    """etcd takes a record of 1 MB, compressed; no text of this size is longer."""
    draw, size = random.Random(1), len(alphabet.encode()) / len(alphabet)
    text = "".join(draw.choices(alphabet, k=int(FILES_LIMIT_BYTES / size) - 2_000))
    spec = job_spec(made(script="a.py", files={"a.py": text}), NAME)
    assert decode(JobSpec, encode(spec)).files == {"a.py": text}

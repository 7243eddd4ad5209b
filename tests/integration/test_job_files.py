"""A job that brings its script along, and reads a variable from a file of the node."""

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from elasticd.control.job_submission import submit
from elasticd.kube.resource.elastic_job import elastic_job
from elasticd.kube.resource.job_spec import job_spec
from elasticd.kube.resource.name import job_name
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec
from elasticd.records.reason import Phase
from tests.fixtures.cluster import Cluster, Job, cluster_on, until

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os
from lib import greeting
print(greeting.TEXT, os.environ["KEY"], os.environ["PLAIN"], flush=True)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.daemon("one").wait_registered()
        yield cluster


def submitted(
    cluster: Cluster,
    name: str,
    files: Mapping[str, str],
    env_files: Mapping[str, str] | None = None,
) -> Job:
    spec = JobSpec(
        name=JobName(name),
        uid=uuid.uuid4().hex,
        entry_kind=EntryKind.SCRIPT,
        entry="train.py",
        env={"PLAIN": "seen"},
        files=files,
        env_files=env_files or {},
    )
    submit(cluster.store, cluster.keys, spec)
    return Job(cluster, name)


def test_a_script_that_stands_in_the_spec_runs_with_its_secret(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Neither script nor secret is on the node as anything but what the job names."""
    secret = tmp_path / "key"
    secret.write_text("s3cr3t")
    files = {"train.py": SCRIPT, "lib/greeting.py": "TEXT = 'hello'\n", "lib/__init__.py": ""}
    job = submitted(cluster, "brought", files, {"KEY": str(secret)})
    job.wait_phase(Phase.SUCCEEDED)
    (out,) = cluster.runs.glob("brought/gen-1/rank-0.out")
    assert out.read_text() == "hello s3cr3t seen\n"
    stored = b"".join(item.value for item in cluster.store.list(cluster.keys.root).items)
    assert b"s3cr3t" not in stored


def test_the_example_of_an_elasticjob_trains_to_its_end(cluster: Cluster) -> None:
    """As the operator would submit it: what a person applies first must work."""
    plain = yaml.safe_load((ROOT / "docs/examples/elasticjob.yaml").read_text())
    found = elastic_job({**plain, "metadata": {**plain["metadata"], "uid": uuid.uuid4().hex}})
    assert found.wrong == ""
    spec = job_spec(found, job_name(found), cluster="test")
    submit(cluster.store, cluster.keys, spec)
    Job(cluster, spec.name).wait_phase(Phase.SUCCEEDED)
    trained = [result.training for result in Job(cluster, spec.name).results.values()]
    assert [each.steps for each in trained if each is not None] == [300]


def test_another_job_of_the_name_has_its_own_files(cluster: Cluster) -> None:
    """Those of the first move aside with its logs: none of them can be imported by mistake."""
    submitted(cluster, "again", {"train.py": "print(1)", "old.py": ""}).wait_phase(Phase.SUCCEEDED)
    script = {"train.py": "import os; print(os.listdir())"}
    submitted(cluster, "again", script).wait_phase(Phase.SUCCEEDED)
    (out,) = cluster.runs.glob("again/gen-1/rank-0.out")
    assert "old.py" not in out.read_text()
    assert list(cluster.runs.glob("again/earlier-1/spec-files/old.py"))


def test_a_secret_that_is_not_there_is_named_and_waited_for(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A Secret may come to be mounted after the job."""
    secret = tmp_path / "late"
    job = submitted(cluster, "late", {"train.py": "pass"}, {"KEY": str(secret)})
    until(lambda: str(secret) in cluster.daemons["one"].log, lambda: "nobody said which is missing")
    secret.write_text("x")
    job.wait_phase(Phase.SUCCEEDED)

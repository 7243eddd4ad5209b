"""The files of ElasticJobs, of which an operator holds no more than it decides by."""

import copy
from typing import Any

import pytest

from elasticd.kube.api.port import ELASTIC_JOBS
from elasticd.kube.api.stream import trimmed
from elasticd.kube.operator.job_items import JobItems
from elasticd.kube.resource.elastic_job import elastic_job
from elasticd.kube.resource.job_spec import changed_fields
from elasticd.kube.resource.spec import digests
from elasticd.records.codec import decode, encode
from elasticd.records.job import JobSpec
from elasticd.store.api import Put, Txn
from tests.fixtures.operator_scene import OperatorScene

TEXT = "# \U0001f525\n" + 300 * "print('hello, world')\n"
FILES = {"train.py": TEXT, "small.py": "pass\n"}


def given(scene: OperatorScene, **files: str) -> dict[str, Any]:
    """Return the object as the real API server gives it, with these files."""
    found: dict[str, Any] = copy.deepcopy(dict(scene.get() or {}))
    found["spec"]["files"] |= {name.replace("_", "."): text for name, text in files.items()}
    return found


def test_files_of_a_submitted_job_are_not_held(scene: OperatorScene) -> None:
    """Neither as its object has them, nor as its record in etcd has them."""
    scene.create(files=FILES)
    assert trimmed(ELASTIC_JOBS, given(scene))["spec"]["files"] == FILES, (
        "it is yet to be submitted"
    )
    scene.converge(scene.begin())
    (job,) = scene.jobs
    whole = scene.store.get(scene.keys.spec(job))
    assert whole is not None and whole.value.count(b"hello") == 300
    found = trimmed(ELASTIC_JOBS, given(scene))
    assert found["spec"]["files"]["small.py"] == "pass\n"
    assert "hello" not in found["spec"]["files"]["train.py"]
    items = JobItems(scene.store, scene.keys, scene.wake)
    kept = (items.read() or {})[job][scene.keys.spec(job)]
    assert b"hello" not in kept.value and b"pass" in kept.value
    assert elastic_job(found).wrong == ""
    items.close()


@pytest.mark.parametrize("is_trimmed", [False, True])
@pytest.mark.parametrize("is_kept_short", [False, True])
def test_change_of_a_file_is_seen_by_its_digest(
    scene: OperatorScene, is_trimmed: bool, is_kept_short: bool
) -> None:
    """Of any file, and whichever side has digests."""
    scene.create(files=FILES)
    scene.converge(scene.begin())
    (job,) = scene.jobs
    items = JobItems(scene.store, scene.keys, scene.wake)
    kept = (items.read() or {})[job][scene.keys.spec(job)]
    items.close()
    whole = scene.store.get(scene.keys.spec(job))
    assert whole is not None
    standing = decode(JobSpec, kept.value if is_kept_short else whole.value)

    def changed(**files: str) -> tuple[str, ...]:
        found = given(scene, **files)
        return changed_fields(
            elastic_job(trimmed(ELASTIC_JOBS, found) if is_trimmed else found), standing
        )

    assert changed() == ()
    assert changed(train_py=TEXT + " ") == changed(small_py="") == ("spec.files",)
    assert changed(more_py="") == ("spec.files",)


def test_digests_stay_as_they_are() -> None:
    assert digests(digests(FILES)) == digests(FILES) != FILES
    assert digests({"half": 2000 * "\ud83d"})["half"].startswith("sha256:"), "JSON may have these"


def test_record_of_a_newer_version_is_kept_for_whoever_says_so(scene: OperatorScene) -> None:
    """What it holds cannot be made less, since nobody knows what it is."""
    scene.create(files=FILES)
    scene.converge(scene.begin())
    (job,) = scene.jobs
    key = scene.keys.spec(job)
    before = scene.store.get(key)
    assert before is not None
    newer = encode(decode(JobSpec, before.value)).replace(b'"schema":"1.0"', b'"schema":"99.0"')
    newer += 5000 * b" "
    scene.store.commit(Txn(then=(Put(key=key, value=newer),)))
    items = JobItems(scene.store, scene.keys, scene.wake)
    assert (items.read() or {})[job][key].value == newer
    items.close()

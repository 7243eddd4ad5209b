"""`elasticd doctor` on a real cluster: all is well, and then some of it is not."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.cluster import Cluster, cluster_on
from tests.fixtures.ports import free_port
from tests.fixtures.s3 import KEYS
from tests.fixtures.scripted_s3 import Habit, ScriptedS3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.daemon("a").wait_registered()
        yield cluster


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """An interpreter without torch, which spares a test the imports."""
    path = tmp_path / "python"
    path.write_text('#!/bin/sh\nexec python3 -I -S "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_cluster_that_is_well(cluster: Cluster, tmp_path: Path) -> None:
    """Two processes form a group with the torch of the tests, and nothing is left anywhere."""
    ended = cluster.run("doctor", "--checkpoint", str(tmp_path / "ck"))
    assert ended.code == 0, ended.out + ended.err
    for said in (
        "two processes formed a group of gloo over 127.0.0.1",
        f"{cluster.endpoints[0]} answers",
        "20 writes below /elasticd/v1/default/",
        "1 node of 1 can be reached, with 1 slot",
        "keeps two writers apart",
    ):
        assert said in ended.out
    assert "\nproblem" not in ended.out
    assert list(cluster.store.keys(cluster.keys.trials)) == []
    assert not (tmp_path / "ck").exists()


def test_what_is_wrong_is_named(cluster: Cluster, bare_python: str) -> None:
    """A member of etcd that is away, a torch that is missing, a server that loses data."""
    urls = ",".join([*cluster.endpoints, f"http://127.0.0.1:{free_port()}"])
    with ScriptedS3(Habit.OVERWRITES) as s3:
        ended = cluster.run(
            "doctor",
            "--json",
            *("--etcd", urls, "--python", bare_python),
            *("--checkpoint", s3.place.url, "--storage-options", json.dumps(s3.place.options)),
            env=KEYS,
        )
    assert ended.code == 1
    found = {(each["subject"], each["verdict"]): each["found"] for each in json.loads(ended.out)}
    assert "No module named 'torch'" in found["torch", "problem"]
    assert "writes over the object that is there" in found["storage", "problem"]
    assert "No etcd answers" in found["etcd", "warning"]
    assert ("nodes", "ok") in found and ("process group", "ok") not in found


def test_etcd_that_is_away_is_one_problem(cluster: Cluster, bare_python: str) -> None:
    """What needs it is not looked at."""
    url = f"http://127.0.0.1:{free_port()}"
    ended = cluster.run("doctor", "--etcd", url, "--python", bare_python)
    assert ended.code == 1
    assert ended.out.count(f"No etcd answers at {url}") == 1
    assert " nodes  " not in ended.out
    assert ended.out.splitlines()[-1] == "2 problems found."

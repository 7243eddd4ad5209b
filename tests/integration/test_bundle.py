"""`elasticd bundle` on a real cluster: a failed job packs itself, a silent node is named."""

import json
import signal
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tests.fixtures.cluster import SCRIPTS, cluster_on

FLAGS = ("--nnodes", "2", "--max-restarts", "0", "--job", "bad", "--env", "ANY=canary-of-env")


def files_of(path: Path) -> Mapping[str, bytes]:
    found = {}
    with tarfile.open(path) as tar:
        for entry in tar:
            file = tar.extractfile(entry)
            assert file is not None
            found[entry.name.partition("/")[2]] = file.read()
    return found


def test_a_failed_job_packs_itself_and_a_node_that_is_silent_since_is_named(tmp_path: Path) -> None:
    """What the agents alone have is in it: output, their own logs, metrics; and no secret."""
    with cluster_on(tmp_path) as cluster:
        for name in ("a", "b"):
            cluster.daemon(name).wait_registered()
        # In a group: both ranks have begun then, and both have an output.
        script = (str(SCRIPTS / "fail.py"), "raise-in-group")
        ended = cluster.run("run", "--bundle", "out", *FLAGS, *script)
        assert ended.code == 1, ended.err
        (path,) = (tmp_path / "out").iterdir()
        assert f"Wrote {path}" in ended.err
        files = files_of(path)
        output = files["run/bad/gen-1/rank-0.err"] + files["run/bad/gen-1/rank-1.err"]
        assert b"is too hot" in output
        for node in ("a", "b"):
            log = files[f"run/bad/agents/{node}.log"].decode().splitlines()
            assert any('"node.registered"' in line for line in log[:3])
            assert b"elasticd_slots" in files[f"metrics/{node}.txt"]
            assert json.loads(files[f"versions/{node}.json"])["torch"]
        assert files["MISSING.txt"].startswith(b"Nothing: ")
        assert not [name for name, data in files.items() if b"canary-of-env" in data]

        # It does not answer, or its lease has run out by then: either is said of it.
        cluster.daemons["b"].send(signal.SIGSTOP)
        told = cluster.run("bundle", "bad", "--to", "later.tgz", "--json")
        assert told.code == 0, told.err
        missing = [each["what"] for each in json.loads(told.out)["missing"]]
        assert "node b" in missing
        assert "metrics/a.txt" in files_of(tmp_path / "later.tgz")

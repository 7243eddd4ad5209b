"""A process that uses etcd starts others, also as another user, where Python forks for it."""

import json
import os
import subprocess
import sys

import pytest

from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from tests.fixtures.patience import patience_s

PROGRAM = """
import collections, json, os, subprocess, sys, threading
from elasticd.store.api import KeyRange, StoreSettings
from elasticd.store.etcd.store import EtcdStore

store = EtcdStore(StoreSettings(endpoints=(sys.argv[1],)))
seen = threading.Event()
watch = store.watch(KeyRange(key="/t/", is_prefix=True), lambda _: seen.set())
assert seen.wait(60.0)
names = {open(f"/proc/self/task/{each}/comm").read() for each in os.listdir("/proc/self/task")}
assert any("event_engine" in name for name in names), "gRPC's core has threads"
codes, threads = collections.Counter(), set()
for _ in range(50):
    own = {"user": os.getuid(), "group": os.getgid()}
    codes[subprocess.run(["true"], **own).returncode] += 1
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writes, b"%d" % len(os.listdir("/proc/self/task")))
        os._exit(0)
    codes[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
    threads.add(os.read(reads, 8))
    os.close(reads)
    os.close(writes)
watch.close()
store.close()
inherited = os.environ.get("GRPC_ENABLE_FORK_SUPPORT")
print(json.dumps([codes, sorted(int(each) for each in threads), inherited]))
"""


@pytest.mark.parametrize("given", [None, "1"])
def test_processes_are_started_beside_threads_of_grpc(
    shared_etcd: EmbeddedEtcd, given: str | None
) -> None:
    """gRPC's core starts no thread in them: these ended half of them before their exec.

    What the environment says of that is a job's, and stays.
    """
    environ = {k: v for k, v in os.environ.items() if k != "GRPC_ENABLE_FORK_SUPPORT"}
    if given is not None:
        environ["GRPC_ENABLE_FORK_SUPPORT"] = given
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, shared_etcd.url],
        env=environ,
        capture_output=True,
        text=True,
        timeout=patience_s(100.0),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [{"0": 100}, [1], given]

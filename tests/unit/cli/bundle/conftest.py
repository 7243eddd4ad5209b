"""A job that failed on a cluster in memory, with a real server of one agent; secrets everywhere."""

import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from elasticd.bundle import agent_client
from elasticd.cli.bundle import command
from elasticd.cli.record_source import RecordSource
from elasticd.control import job_submission
from elasticd.records.account.incident import Incident
from elasticd.records.checkpoint import CheckpointSpec
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Nonce, Rank, Slot
from elasticd.records.job import EntryKind, JobSpec, JobStatus
from elasticd.records.member import Node
from elasticd.records.reason import Phase, Reason
from elasticd.records.tensorboard import TensorBoardSpec
from elasticd.store.api import StoreSettings
from elasticd.store.memory import MemoryStore
from elasticd_agent.http_server.answer import HttpAnswer
from elasticd_agent.http_server.bundle import BundleFiles
from elasticd_agent.http_server.listener import HttpListener
from elasticd_agent.http_server.server import HttpServer
from tests.fixtures.patience import patience_s
from tests.unit.control.world_case import KEYS, put, world

JOB = JobName("j")


@dataclass(frozen=True)
class Site:
    """Where everything is, and how it is opened."""

    store: MemoryStore
    source: RecordSource
    runs: Path
    """Of the node that answers."""
    here: Path
    """The folder in which the command is called."""
    server: HttpServer


def files_of(path: Path) -> Mapping[str, bytes]:
    """Unpack a bundle; the names are those below its own folder."""
    found = {}
    with tarfile.open(path) as tar:
        for entry in tar:
            file = tar.extractfile(entry)
            assert file is not None
            found[entry.name.partition("/")[2]] = file.read()
    return found


def bundle_in(folder: Path) -> Path:
    (path,) = folder.glob("elasticd-bundle-*.tar.gz")
    return path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Two nodes; that of the second rank is gone. Each secret is called canary-<place>."""
    for name in ("here", "runs", "own"):
        (tmp_path / name).mkdir()
    here, runs = tmp_path / "here", tmp_path / "runs"
    (here / "token").write_text("canary-tokenfile\n")
    monkeypatch.chdir(here)
    monkeypatch.setenv("MY_TOKEN", "canary-environ")
    monkeypatch.setenv("NAMED", "canary-named")
    place = runs / JOB / "gen-2"
    place.mkdir(parents=True)
    (place / "rank-0.out").write_text(
        "env: canary-env args: canary-arg canary-equals node: canary-node\n"
        "file: canary-tokenfile named: canary-named profile: canary-option\n"
        "proxy http://u:canary-inurl@proxy:3128 etcd canary-etcd canary-curves\n"
    )
    (place / "rank-0.err").write_text("Traceback: canary-env\n")
    (runs / JOB / "incidents").mkdir()
    (runs / JOB / "incidents" / "gen-1.a.stacks.txt").write_text("in f(canary-env)\n")
    (runs / JOB / "agents").mkdir()
    (runs / JOB / "agents" / "a.keeper.log").write_text("refused: canary-named\n")
    files = BundleFiles(
        runs,
        {},
        log_lines=lambda: ["agent knows canary-node and canary-env"],
        password="canary-etcd",
        environ={"NODE_SECRET": "canary-node"},
    )
    server = HttpServer(HttpListener("127.0.0.1"), (files, _metrics))
    store = _stored(server.port, here)
    settings = StoreSettings(endpoints=("http://h:1",), password="canary-etcd")
    source = RecordSource(store=store, keys=KEYS, run_folder=tmp_path / "own", settings=settings)

    @contextmanager
    def opened(values: object, job: str | None) -> Iterator[tuple[RecordSource, JobName]]:
        yield source, JobName(job or JOB)

    monkeypatch.setattr(command, "job_source", opened)
    monkeypatch.setattr(agent_client, "TIMEOUT_S", patience_s(30.0))
    yield Site(store=store, source=source, runs=runs, here=here, server=server)
    server.close()


def _metrics(path: str, query: str) -> HttpAnswer | None:
    return HttpAnswer(body=b"elasticd_slots 2\n") if path == "/metrics" else None


def _stored(port: int, here: Path) -> MemoryStore:
    failure = Failure(
        node=NodeId("b"), incarnation=Incarnation("i"), host="host-b", generation=Generation(2),
        rank=Rank(1), local_rank=0, slot=Slot(0), nonce=Nonce(1), exit_code=1,
        exception="E: canary-env", traceback="  raise E('canary-arg')",
    )  # fmt: skip
    spec = JobSpec(
        name=JOB, uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py",
        args=("--lr", "0.1", "--api-key", "canary-arg", "--token=canary-equals",
              "--db", "postgres://me:canary-dburl@db/x"),
        env={"ANY": "canary-env", "PROXY": "http://u:canary-inurl@proxy:3128"},
        checkpoint=CheckpointSpec(
            url="memory://none/x", owner="j",
            options={
                "key": "env:NAMED", "secret": f"file:{here}/token", "profile": "canary-option"
            },
        ),
        tensorboard=TensorBoardSpec(
            url="memory://curves", folder="j", options={"profile": "canary-curves"}
        ),
    )  # fmt: skip
    store = MemoryStore()
    job_submission.submit(store, KEYS, spec)
    status = JobStatus(
        phase=Phase.FAILED, generation=Generation(2), message="canary-env", failure=failure
    )
    put(store, KEYS.status(JOB), status)
    put(store, KEYS.world(JOB), world(2, "a", "b"))
    for name in "ab":
        incident = Incident(
            generation=Generation(2), node=NodeId(name), host=f"host-{name}", nodes=2,
            world_size=2, reason=Reason.WORKER_HUNG, culprit=failure, note="canary-env",
        )  # fmt: skip
        put(store, KEYS.incident(JOB, Generation(2), NodeId(name)), incident)
    node = Node(
        node=NodeId("a"), incarnation=Incarnation("i"), host="host-a", address="127.0.0.1",
        port=1, slots=1, http_port=port, labels={"api_key": "canary-label"},
    )  # fmt: skip
    put(store, KEYS.node(NodeId("a")), node)
    return store

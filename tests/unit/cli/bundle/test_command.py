"""`elasticd bundle`: what is in it, what is not, and that no secret is."""

import json
import stat
import subprocess
from pathlib import Path

import fsspec
import pytest

from elasticd.bundle import agent_client, destination
from elasticd.cli import record_source
from elasticd.cli.main import main
from elasticd.control.logs.output import HttpFetch
from elasticd.errors import Unavailable
from elasticd.records.codec import encode
from elasticd.records.ids import Generation, NodeId
from elasticd.records.job import JobStatus
from elasticd.records.keys import Keys
from elasticd.records.reason import Phase
from elasticd.store.api import Delete, Put, Store, StoreSettings, Txn
from elasticd.store.memory import MemoryStore
from tests.unit.cli.bundle.conftest import JOB, Site, bundle_in, files_of
from tests.unit.control.world_case import KEYS, node, put

CANARIES = (
    *("env", "arg", "equals", "dburl", "inurl", "named", "tokenfile"),
    *("option", "environ", "node", "label", "etcd", "storage", "curves"),
)


def test_no_secret_is_found_anywhere_in_it(
    site: Site, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One canary in every place where a person can put a value; none comes out again (I10)."""
    monkeypatch.setenv("BUCKET_PASS", "canary-storage")
    with (site.runs / JOB / "gen-2" / "rank-0.out").open("a") as file:
        file.write("storage: canary-storage environ: canary-environ label: api_key=canary-label\n")
    monkeypatch.setattr(destination, "checked_url", lambda url, **_: url)  # Memory is none.
    options = json.dumps({"password": "env:BUCKET_PASS"})
    assert main(["bundle", JOB, "--to", "memory://c/x.tgz", "--storage-options", options]) == 0
    path = site.here / "x.tgz"
    path.write_bytes(fsspec.filesystem("memory").cat("/c/x.tgz"))
    told = capfd.readouterr()
    for name, data in files_of(path).items():
        for canary in CANARIES:
            assert f"canary-{canary}".encode() not in data, (name, canary)
            assert f"canary-{canary}" not in name
    assert b"canary" not in path.read_bytes()
    assert "canary" not in told.out + told.err
    output = files_of(path)["run/j/gen-2/rank-0.out"].decode()
    assert "env: ***ANY*** args: ***api-key*** ***token*** node: ***NODE_SECRET***" in output


@pytest.mark.parametrize("has_folder", [True, False])
def test_without_etcd_nothing_is_packed_unmasked_and_the_files_are_named(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    has_folder: bool,
) -> None:
    """The values of --env stand in the job's record alone, and a script may have printed them."""

    def away(settings: StoreSettings, keys: Keys) -> Store:
        raise Unavailable("No etcd answers at http://e:1: start it or correct --etcd.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record_source, "open_store", away)
    runs = tmp_path / "runs"
    if has_folder:
        (runs / JOB / "gen-1").mkdir(parents=True)
        (runs / JOB / "gen-1" / "rank-0.out").write_text("secret")
    call = ["bundle", JOB, "--etcd", "http://e:1", "--log-dir", str(runs)]
    assert main(call) != 0
    said = capfd.readouterr().err
    assert said.startswith("elasticd: No etcd answers") and len(said.splitlines()) == 1
    assert "says which values are secrets to be masked" in said
    where = f"on this host is in {runs / JOB}, unmasked." if has_folder else "folder of each node"
    assert where in said
    assert not list(tmp_path.glob("*.tar.gz"))


def test_it_has_what_a_colleague_looks_for(site: Site) -> None:
    """Each part of it, from where it is."""
    assert main(["bundle", JOB]) == 0
    files = files_of(bundle_in(site.here))
    assert set(files) >= {
        "README.txt", "why.txt", "why.html", "status.txt", "trace.json",
        "data/checkpoints.json", "data/spec.json", "data/status.json",
        "data/worlds.json", "data/incidents.json",
        "metrics/a.txt", "versions/a.json", "versions/here.json",
        "run/j/records.json", "run/j/gen-2/rank-0.out", "run/j/gen-2/rank-0.err",
        "run/j/incidents/gen-1.a.stacks.txt", "run/j/agents/a.keeper.log", "run/j/agents/a.log",
        "MISSING.txt", "manifest.json",
    }  # fmt: skip
    assert files["metrics/a.txt"] == b"elasticd_slots 2\n"
    assert b"last failure: rank 1 on host-b (b)" in files["README.txt"]
    assert b"a worker hung: rank 1" in files["why.txt"]
    assert json.loads(files["data/spec.json"])["env"] == {"ANY": "***", "PROXY": "***"}
    listed = {each["path"]: each for each in json.loads(files["manifest.json"])["files"]}
    assert set(listed) == set(files) - {"MISSING.txt", "manifest.json"}
    assert listed["run/j/gen-2/rank-0.out"]["node"] == "a"
    assert stat.S_IMODE(bundle_in(site.here).stat().st_mode) == 0o600


def test_what_could_not_be_had_is_named_in_it_and_said(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    """Node b is gone, the storage is not here, no agent wrote an account."""
    assert main(["bundle", JOB]) == 0
    said = capfd.readouterr().out
    files = files_of(bundle_in(site.here))
    named = files["MISSING.txt"].decode().splitlines()
    assert [line.partition(":")[0] for line in named] == [
        "account",
        "node b",
        "output of rank 1 in generation 2",
    ]
    assert all(f"  {line}\n" in said for line in named)
    assert [each["what"] for each in json.loads(files["manifest.json"])["missing"]] == [
        "account",
        "node b",
        "output of rank 1 in generation 2",
    ]
    assert "look before you pass it on" in said


def test_an_agent_that_does_not_answer_is_named_and_the_rest_is_there(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are in etcd; one time-out is all that it costs."""
    monkeypatch.setattr(agent_client, "TIMEOUT_S", 0.2)
    site.server.close()
    assert main(["bundle", JOB]) == 0
    files = files_of(bundle_in(site.here))
    assert b"node a: its agent does not answer (127.0.0.1:" in files["MISSING.txt"]
    assert b"output of rank 0, 1 in generation 2" in files["MISSING.txt"]
    assert "why.txt" in files and "run/j/records.json" in files


def test_unpacked_it_is_a_run_that_every_command_reads(
    site: Site, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A colleague needs neither the cluster nor a reader of JSON."""
    assert main(["bundle", JOB, "--to", "x.tgz"]) == 0
    subprocess.run(["tar", "-xzf", "x.tgz"], cwd=site.here, check=True)
    monkeypatch.undo()  # `job_source` is the real one again.
    monkeypatch.delenv("ELASTICD_ETCD", raising=False)
    where = ["--log-dir", str(site.here / "x" / "run")]
    capfd.readouterr()
    assert main(["why", JOB, *where]) == 0
    assert "generation 2: 2 nodes, 2 workers (a worker hung" in capfd.readouterr().out
    assert main(["logs", JOB, "--rank", "0", *where]) == 0
    assert "env: ***ANY***" in capfd.readouterr().out
    assert main(["status", *where, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)[0]["status"]["phase"] == "failed"


def test_files_of_another_job_of_that_name_on_this_machine_are_not_taken(site: Site) -> None:
    """This machine may have run one of its own; whose folder it is stands in it."""
    place = site.source.run_folder / JOB / "gen-2"
    place.mkdir(parents=True)
    (place / "rank-1.out").write_text("of another job")
    for uid, is_ours in (("other", False), ("u", True)):
        (place.parent / "uid").write_text(f"{uid}\n")
        assert main(["bundle", JOB, "--to", f"{uid}.tgz"]) == 0
        assert ("run/j/gen-2/rank-1.out" in files_of(site.here / f"{uid}.tgz")) is is_ours


def test_a_record_of_a_newer_version_costs_the_words_and_not_the_bundle(site: Site) -> None:
    """The colleague may have that version."""
    value = encode(node("a")).replace(b'"1.0"', b'"2.0"')
    put = Put(key=KEYS.member(JOB, NodeId("z")), value=value)
    site.store.commit(Txn(then=(put,)))
    assert main(["bundle", JOB]) == 0
    files = files_of(bundle_in(site.here))
    assert b"status, worlds, incidents and account" in files["MISSING.txt"]
    assert b"members/z" in files["run/j/records.json"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nojob"], "There is no job 'nojob'"),
        ([JOB, "--to", "foo://x"], "no kind of storage"),
        ([JOB, "--to", ""], "names nothing"),
        ([JOB, "--to", "token/x.tgz"], "token is a file"),
        ([JOB, "--to", "s3://u:hunter22@b"], "leave credentials"),
        ([JOB, "--storage-options", "{"], "--storage-options is no JSON"),
        ([JOB, "--storage-options", '{"key": "hunter22"}'], "gives a secret in 'key'"),
        ([JOB, "--to", "x", "--storage-options", '{"a": 1}'], "a folder takes none"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    site: Site, capfd: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    """Before anything is left anywhere, and without what was secret in the call."""
    assert main(["bundle", *args]) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and err.startswith("elasticd: ")
    assert said in err and "hunter22" not in err
    assert sorted(path.name for path in site.here.iterdir()) == ["token"]


def test_nobody_is_asked_about_a_run_that_is_over(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ports may belong to somebody else by now, also if its status never said the end."""
    asked: list[object] = []

    def answer(*args: object) -> None:
        asked.append(args)

    monkeypatch.setattr(HttpFetch, "_reply", answer)
    put(site.store, KEYS.status(JOB), JobStatus(phase=Phase.RUNNING, generation=Generation(2)))
    object.__setattr__(site.source, "is_archive", True)
    object.__setattr__(site.source, "settings", None)
    assert main(["bundle", JOB]) == 0
    assert asked == []
    named = files_of(bundle_in(site.here))["MISSING.txt"].decode()
    assert "metrics of the agents: the run is over" in named
    assert "output of workers, stacks and logs: there is no folder" in named


def test_of_a_job_that_nobody_serves_yet_every_agent_is_asked(site: Site) -> None:
    """Why it waits may stand in the log of any of them."""
    items = [item.key for item in site.store.list(KEYS.job(JOB)).items]
    kept = {KEYS.spec(JOB), KEYS.status(JOB)}
    site.store.commit(Txn(then=tuple(Delete(key=key) for key in items if key not in kept)))
    put(site.store, KEYS.status(JOB), JobStatus())
    assert main(["bundle", JOB]) == 0
    assert "run/j/agents/a.log" in files_of(bundle_in(site.here))


def test_json_says_the_same_for_programs(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", JOB, "--json", "--to", "made/x.tgz"]) == 0
    plain = json.loads(capfd.readouterr().out)
    path = Path(plain["url"])
    assert (path, plain["bytes"]) == (site.here / "made" / "x.tgz", path.stat().st_size)
    assert plain["files"] == len(files_of(path))
    assert [each["what"] for each in plain["missing"]][1] == "node b"


def test_an_empty_store_has_no_job(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    object.__setattr__(site.source, "store", MemoryStore())
    assert main(["bundle", JOB]) == 2
    assert "There is no job 'j'" in capfd.readouterr().err

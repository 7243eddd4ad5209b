"""`elasticd autoscale set`: what is written, what is only noted, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.cli.main import main
from elasticd.control.job_policy import set_policy
from elasticd.errors import NotFound
from elasticd.records.account.time_spent import JobProgress
from elasticd.records.autoscale.leader import Leader
from elasticd.records.autoscale.policy import Policy
from elasticd.records.codec import decode
from elasticd.records.ids import Generation
from elasticd.records.job import Active, JobStatus, Want
from elasticd.records.reason import Phase
from elasticd.store.memory import MemoryStore
from tests.fixtures.autoscaled import JOB, KEYS, autoscaled, put, report_of
from tests.fixtures.scripted_prometheus import scripted_prometheus
from tests.unit.cli.autoscale.conftest import Look

GOODPUT = "max_step = 2\n[goodput]\nhorizon = '1h'\n"
LOAD = """
[target]
[[target.metrics]]
name = "queue"
query = 'queue_length{job_name="$job"}'
load = 30
"""

QUERY = 'queue_length{job_name="digits"}'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A policy that is right for the job."""
    path = tmp_path / "policy.toml"
    path.write_text(GOODPUT)
    return path


def test_policy_is_the_jobs_from_then_on(
    look: Look, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With its uid, who set it, and when."""
    store = look(autoscaled(policy=None))
    assert main(["autoscale", "set", JOB, str(file)]) == 0
    assert capfd.readouterr().out == "job digits has a policy (goodput)\n"
    item = store.get(KEYS.policy(JOB))
    assert item is not None
    policy = decode(Policy, item.value)
    assert policy.uid == "u1" and policy.max_step == 2 and policy.goodput is not None
    assert policy.goodput.horizon_s == 3600.0
    assert "@" in policy.set_by and policy.set_at_unix_s > 1_700_000_000.0


def test_dry_run_says_what_would_be_set_and_sets_nothing(
    look: Look, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """For programs with all values that the file leaves out."""
    store = look(autoscaled(policy=None))
    assert main(["autoscale", "set", JOB, str(file), "--dry-run", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["is_dry_run"] and told["policy"]["goodput"]["probe_s"] == 60.0
    assert store.get(KEYS.policy(JOB)) is None


def test_what_keeps_it_from_doing_anything_is_noted(
    look: Look, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A pin; restart mode; steps that nobody has reported yet."""
    pin = Want(writer="user", nodes=3, why="elasticd scale")
    store = look(autoscaled(policy=None, wants=(pin,)))
    young = JobStatus(phase=Phase.RUNNING, generation=Generation(1), nodes=2, uid="u1")
    put(store, KEYS.status(JOB), young)
    put(store, KEYS.progress(JOB), JobProgress(uid="u1", generation_s=2.0))
    assert main(["autoscale", "set", JOB, str(file)]) == 0
    notes = capfd.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in notes] == ["note"] * 3
    assert "[goodput] waits for that" in notes[0]
    assert "allow_restarts = true" in notes[1]
    assert "nothing is decided while a pin stands: size: 3 nodes" in notes[2]


def test_rule_that_needs_steps_is_refused_for_a_job_that_reports_none(
    look: Look, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once its generation is old enough to know; a rule that needs none is taken."""
    store = look(autoscaled(policy=None))
    old = JobStatus(phase=Phase.RUNNING, generation=Generation(1), nodes=2, uid="u1")
    put(store, KEYS.status(JOB), old)
    put(store, KEYS.progress(JOB), JobProgress(uid="u1", generation_s=61.0))
    assert main(["autoscale", "set", JOB, str(file)]) == 2
    assert "[goodput] needs the job's steps, and job digits reports none" in capfd.readouterr().err
    file.write_text(LOAD)
    assert main(["autoscale", "set", JOB, str(file)]) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[goodputt]\n", "goodput"),
        ("max_nodes = 9\n[goodput]\n", "max_nodes = 9 is outside of what job digits may have"),
        ("[deadline]\nsteps = 4000\nwithin = '1h'\n", "[deadline] steps = 4000 are made already"),
        ("[deadline]\nsteps = 9000\nat = 2020-01-01T00:00:00Z\n", "set a later one"),
        ("schema = 9\n[goodput]\n", "schema"),
        ("min_nodes = 3\nmax_nodes = 2\n[goodput]\n", "min_nodes"),
        ("", "is empty: add at least one of [target]"),
    ],
)
def test_wrong_policy_is_one_sentence_and_the_one_before_stays(
    store: MemoryStore, file: Path, text: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """What was wrong, its value, what to do."""
    before = store.get(KEYS.policy(JOB))
    file.write_text(text)
    assert main(["autoscale", "set", JOB, str(file)]) == 2
    told = capfd.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and said in told.err, told.err
    assert store.get(KEYS.policy(JOB)) == before


def test_wrong_call_is_one_sentence(
    look: Look, over: MemoryStore, file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A job that is over, one that there is not, a file that there is not, no file at all."""
    for argv, said in (
        ((JOB, str(file)), "Job 'digits' is over (succeeded): a policy sizes jobs that run."),
        (("digit", str(file)), "did you mean digits?"),
        ((JOB, str(tmp_path / "none.toml")), "There is no policy file"),
        ((JOB, ""), "There is no policy file ''"),
        ((JOB, str(tmp_path)), "is a folder: name the policy file, as in"),
        ((JOB,), "Missing argument 'POLICY.TOML'"),
    ):
        assert main(["autoscale", "set", *argv]) == 2
        told = capfd.readouterr()
        assert told.out == "" and told.err.count("\n") == 1 and said in told.err, told.err


def test_job_that_ends_meanwhile_gets_none() -> None:
    """Nor does another one that has its name by then."""
    store = autoscaled(policy=None)
    spec = report_of(store).spec
    put(store, KEYS.active_job(JOB), Active(uid="another", is_ready=True))
    with pytest.raises(NotFound, match="is over"):
        set_policy(store, KEYS, spec, Policy(uid=spec.uid))
    assert store.get(KEYS.policy(JOB)) is None


def test_queries_are_asked_and_what_they_say_is_told(
    store: MemoryStore, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also that one has no series yet: the job may have to begin first. Without it nobody asks."""
    file.write_text(LOAD)
    with scripted_prometheus() as prometheus:
        called = ["autoscale", "set", JOB, str(file), "--prometheus", prometheus.url]
        prometheus.values[QUERY] = ["12"]
        assert main(called) == 0
        assert "note: queue is 12 now\n" in capfd.readouterr().err
        prometheus.pasts[QUERY] = [(120.0, "10"), (60.0, "NaN"), (0.0, "14.5")]
        assert main(called) == 0
        said = "queue is 12 now, and was between 10 and 14.5 within the last hour"
        assert said in capfd.readouterr().err
        del prometheus.values[QUERY]
        assert main(called) == 0
        assert "note: queue has no number now (empty)" in capfd.readouterr().err
        assert main(called[:4]) == 0
        assert "note: nobody was asked whether its queries are right" in capfd.readouterr().err


def test_query_that_needs_a_prometheus_is_refused_where_the_leader_has_none(
    store: MemoryStore, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As on a local run; what its agents have themselves is set, and so is all if nobody tells."""
    before, leader = store.get(KEYS.policy(JOB)), Leader(name="h:7", token="t", source="agents")
    put(store, KEYS.autoscaler_election, leader)
    for query, said in (
        ("queue_length", "queue: queue_length is no metric of the agents"),
        ("sum(queue_length)", "queue: sum(queue_length) is PromQL"),
    ):
        file.write_text(LOAD.replace('queue_length{job_name="$job"}', query))
        assert main(["autoscale", "set", JOB, str(file)]) == 2
        told = capfd.readouterr()
        assert told.out == "" and told.err.count("\n") == 1 and said in told.err, told.err
        assert "Nothing was set: the autoscaler that leads, h:7, was started without" in told.err
    assert store.get(KEYS.policy(JOB)) == before
    put(store, KEYS.autoscaler_election, replace(leader, source=""))
    assert main(["autoscale", "set", JOB, str(file)]) == 0
    put(store, KEYS.autoscaler_election, leader)
    file.write_text(LOAD.replace('queue_length{job_name="$job"}', "elasticd_steps_total"))
    assert main(["autoscale", "set", JOB, str(file)]) == 0


def test_query_that_prometheus_refuses_is_refused_in_its_words(
    store: MemoryStore, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is set then, nor where it does not answer at all."""
    file.write_text(LOAD)
    before = store.get(KEYS.policy(JOB))
    with scripted_prometheus() as prometheus:
        called = ["autoscale", "set", JOB, str(file), "--prometheus", prometheus.url]
        prometheus.refused.add(QUERY)
        assert main(called) == 2
        told = capfd.readouterr().err
    assert "is refused" in told and "invalid parameter" in told and told.count("\n") == 1
    assert main(called) != 0
    told = capfd.readouterr().err
    assert "queue cannot be checked" in told and told.count("\n") == 1
    assert "without --prometheus a policy is set unchecked" in told
    assert store.get(KEYS.policy(JOB)) == before


def test_flags_of_prometheus_are_for_one_that_is_named(
    store: MemoryStore, file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And a file that is named must be there."""
    file.write_text(LOAD)
    missing = str(tmp_path / "token")
    for flags, said in (
        (("--token-file", missing), "--token-file is for Prometheus: give --prometheus"),
        (("--prometheus", "http://127.0.0.1:1", "--token-file", missing), missing),
        (("--prometheus", "prometheus:9090"), "http://host:9090"),
        (("--prometheus", ""), "empty"),
    ):
        assert main(["autoscale", "set", JOB, str(file), *flags]) == 2
        told = capfd.readouterr()
        assert told.out == "" and said in told.err and told.err.count("\n") == 1, told.err

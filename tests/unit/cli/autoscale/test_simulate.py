"""`elasticd autoscale simulate` as a person and a program call it."""

import json
import os
import time
from pathlib import Path

import pytest

from elasticd.cli.main import main
from elasticd.records.account.incident import Incident
from elasticd.records.ids import Generation, NodeId
from elasticd.records.reason import Phase, Reason
from elasticd.store.memory import MemoryStore
from tests.fixtures.autoscaled import AT_S, JOB, KEYS, autoscaled, put
from tests.fixtures.scripted_prometheus import scripted_prometheus
from tests.unit.cli.autoscale.conftest import Look


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "other.toml"
    path.write_text("[goodput]\n")
    return path


def lived(store: MemoryStore) -> MemoryStore:
    """Have the job's first world told of, on two nodes."""
    incident = Incident(
        generation=Generation(1), node=NodeId("node-0"), host="h", reason=Reason.FIRST_WORLD,
        nodes=2, world_size=2, at_unix_s=AT_S,
    )  # fmt: skip
    put(store, KEYS.incident(JOB, Generation(1), NodeId("node-0")), incident)
    return store


def test_another_policy_is_lived_through_and_compared_with_what_was(
    look: Look, file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a job that is over; nothing is written but the picture."""
    store = look(lived(autoscaled(phase=Phase.SUCCEEDED)))
    before = store.list(KEYS.jobs).items
    picture = tmp_path / "x.svg"
    assert main(["autoscale", "simulate", JOB, str(file), "--svg", str(picture)]) == 0
    told = capfd.readouterr().out
    assert "as it was" in told and f"with {file}" in told and "note: " in told
    assert picture.read_text().startswith("<svg")
    assert store.list(KEYS.jobs).items == before
    assert main(["autoscale", "simulate", JOB, str(file), "--json"]) == 0
    plain = json.loads(capfd.readouterr().out)
    assert plain["was"]["steps"] == 4_000 and plain["would_be"]["steps"] > 0
    assert plain["points"][-1]["at_s"] == 900.0


def test_wrong_input_is_one_sentence(
    look: Look, file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A job without a curve, one that there is not, a policy that is wrong, a picture's place."""
    over = autoscaled(phase=Phase.SUCCEEDED)
    for store, argv, said in (
        (autoscaled(curve=None), (JOB, str(file)), "has no curve that could be simulated on"),
        (autoscaled(), ("digit", str(file)), "did you mean digits?"),
        (autoscaled(), (JOB, str(tmp_path / "none.toml")), "There is no policy file"),
        (over, (JOB, str(file), "--svg", str(tmp_path)), "choose another --svg"),
    ):
        look(lived(store))
        assert main(["autoscale", "simulate", *argv]) == 2
        told = capfd.readouterr()
        assert told.out == "" and said in told.err and told.err.count("\n") == 1, told.err
    file.write_text("[idle]\n")
    assert main(["autoscale", "simulate", JOB, str(file)]) == 2
    assert "Nothing of this policy can be simulated" in capfd.readouterr().err


def test_place_of_the_picture_is_tried_before_the_job_is_simulated(
    look: Look, file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Even before Prometheus is asked; the trial leaves no file, and an old picture as it is."""
    look(lived(autoscaled(phase=Phase.SUCCEEDED)))
    file.write_text("[idle]\n")  # It asks a Prometheus, which is away.
    argv = ["autoscale", "simulate", JOB, str(file), "--prometheus", "http://127.0.0.1:1", "--svg"]
    pipe, old, new = (tmp_path / name for name in ("pipe", "old.svg", "new.svg"))
    os.mkfifo(pipe)
    old.write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "none" / "x.svg")
    places = (tmp_path, tmp_path / "none" / "x.svg", old / "x", pipe, tmp_path / "link", "a\0b")
    for place in (*places, "x" * 300):
        assert main([*argv, str(place)]) == 2
        told = capfd.readouterr()
        assert told.out == "" and "choose another --svg" in told.err, told.err
        assert told.err.count("\n") == 1
    for place in (old, new):
        assert main([*argv, str(place)]) != 0
        assert "does not answer" in capfd.readouterr().err
    assert old.read_text() == "old" and not new.exists()


RULES = """
[target]
[[target.metrics]]
name = "queue"
query = 'queue{job="$job"}'
load = 100
[idle]
[budget]
steps = 5000
cost = 3000
price = "price"
"""
PAUSES = (
    '(sum(rate(elasticd_slot_seconds_total{job_name="digits",cause="pause"}[1m])) or vector(0)) / '
    'sum(rate(elasticd_slot_seconds_total{job_name="digits",cause!="spare"}[1m]))'
)


def test_what_queries_answered_in_the_jobs_life_is_asked_of_prometheus(
    look: Look, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of the time from its first world to its end, by Prometheus' clock."""
    store = look(lived(autoscaled(phase=Phase.SUCCEEDED)))
    last = Incident(
        generation=Generation(2), node=NodeId("node-0"), host="h", reason=Reason.JOINED,
        nodes=2, world_size=2, at_unix_s=AT_S + 600.0,
    )  # fmt: skip
    put(store, KEYS.incident(JOB, Generation(2), NodeId("node-0")), last)
    file.write_text(RULES)
    ago_s = time.time() - AT_S
    with scripted_prometheus() as script:
        script.pasts = {
            'queue{job="digits"}': [(ago_s - 15.0 * n, "350") for n in range(1, 40)],
            "price": [(ago_s - 15.0 * n, "1") for n in range(1, 40)],
            PAUSES: [(ago_s - 15.0 * n, "0") for n in range(1, 40)],
        }
        argv = ["autoscale", "simulate", JOB, str(file), "--prometheus", script.url]
        assert main([*argv, "--json"]) == 0
        plain = json.loads(capfd.readouterr().out)
        asked = [each.fields for each in script.seen if each.path.endswith("query_range")]
        script.pasts = {}
        assert main(argv) == 2
        assert "Prometheus has nothing of queue" in capfd.readouterr().err
    first = plain["decisions"][0]
    read = {name: first["inputs"][f"metric {name}"] for name in ("queue", "price")}
    assert (first["to_nodes"], read) == (4, {"queue": 350.0, "price": 1.0})
    assert not [note for note in plain["notes"] if "left out" in note]
    assert len(asked) == 4
    starts = [float(each["start"]) for each in asked]
    assert starts == pytest.approx([script.now_s - ago_s] * 4, abs=60.0)


def test_prometheus_that_is_away_is_one_sentence(
    look: Look, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And one that nobody needs is not asked."""
    look(lived(autoscaled(phase=Phase.SUCCEEDED)))
    argv = ["autoscale", "simulate", JOB, str(file), "--prometheus", "http://127.0.0.1:1"]
    assert main(argv) == 0
    capfd.readouterr()
    file.write_text(RULES)
    assert main(argv) != 0
    told = capfd.readouterr()
    assert told.out == "" and "does not answer" in told.err and told.err.count("\n") == 1
    assert main(argv[:-2]) == 2
    said = capfd.readouterr().err
    assert said.count("give --prometheus URL") == 3 and "[idle] is left out" in said

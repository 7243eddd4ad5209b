"""`elasticd autoscale simulate` as a person and a program call it."""

import json
from pathlib import Path

import pytest

from elasticd.cli.main import main
from elasticd.records.ids import Generation, NodeId
from elasticd.records.incident import Incident
from elasticd.records.reason import Phase, Reason
from elasticd.store.memory import MemoryStore
from tests.fixtures.autoscaled import AT_S, JOB, KEYS, autoscaled, put
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
    for store, argv, said in (
        (autoscaled(curve=None), (JOB, str(file)), "has no curve that could be simulated on"),
        (autoscaled(), ("digit", str(file)), "did you mean digits?"),
        (autoscaled(), (JOB, str(tmp_path / "none.toml")), "There is no policy file"),
        (autoscaled(), (JOB, str(file), "--svg", str(tmp_path)), "choose another --svg"),
    ):
        look(lived(store))
        assert main(["autoscale", "simulate", *argv]) == 2
        told = capfd.readouterr()
        assert told.out == "" and said in told.err and told.err.count("\n") == 1, told.err
    file.write_text("[idle]\n")
    assert main(["autoscale", "simulate", JOB, str(file)]) == 2
    assert "Nothing of this policy can be simulated" in capfd.readouterr().err

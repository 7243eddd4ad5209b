"""`elasticd.progress` in restart mode: what `status` shows of a script that tells it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.cluster import until
from tests.fixtures.local_run import LocalRun

SCRIPT = Path(__file__).parents[1] / "fixtures" / "scripts" / "told.py"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalRun]:
    folder = tmp_path / "here"
    folder.mkdir()
    local = LocalRun(folder, shares_server=True)
    yield local
    local.mark.kill_all()


def test_status_shows_what_a_script_of_restart_mode_told(local: LocalRun) -> None:
    """Step, epoch and numbers, of the processes that run now; and it stays one of restart mode."""
    args = ("--job", "told", "--nproc-per-node", "2", str(SCRIPT), str(local.folder))
    call = local.call(*args)
    until(
        lambda: all((local.folder / f"told-{rank}").exists() for rank in (0, 1)),
        lambda: call.err,
    )

    def ranks() -> list[dict[str, object]]:
        asked = local.command("status", "told", "--json")
        found: list[dict[str, object]] = json.loads(asked.out)["progress"]
        return found

    def are_far(found: list[dict[str, object]]) -> bool:
        """The tenth call was close behind one that was sent: so it may show the ninth."""
        return [int(str(one["step"])) >= 28 for one in found] == [True, True]

    first = until(lambda: found if are_far(found := ranks()) else None, ranks)[0]
    assert (first["epoch"], first["is_told"], first["generation"]) == (3, True, 2)

    def shown() -> str:
        """An agent that is busy for more than a second does not answer: then there is no line."""
        found = local.command("status", "told").out
        return found if "training: " in found else ""

    said = until(shown, lambda: call.err)
    assert "training: step 2" in said
    assert ", epoch 3, loss 0.1" in said
    assert "; it said so " in said
    (local.folder / "end").touch()
    assert call.wait().code == 0
    archived = json.loads(local.command("status", "told", "--json").out)
    assert archived["status"]["restarts"] == 1
    assert not archived["status"]["is_in_process"]
    why = json.loads(local.command("why", "told", "--json").out)
    spent_s = why["account"]["seconds"]
    assert why["account"]["has_steps"] and spent_s["train"] > 0.0
    # The way of both workers to their first step was no training, and stands with its change.
    change = why["changes"][-1]
    assert change["step"] == 21
    assert spent_s["recover"] >= change["spent_s"]["recover"] >= change["phases_s"]["step"] > 0.0

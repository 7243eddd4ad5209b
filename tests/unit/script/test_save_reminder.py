"""At the end of a script of restart mode that saved nothing: who is told so, and who is not."""

from pathlib import Path
from typing import Any, Self

import pytest
import torch

from elasticd.checkpoint import Writer
from elasticd.errors import Unavailable
from elasticd.keeper import client
from elasticd.keeper.wire import message as ms
from elasticd.script import save_reminder
from elasticd.script.save_reminder import remind
from elasticd.train import save_and_load
from elasticd.train.run import run
from elasticd.train.save_and_load import load, save
from elasticd.train.state.state import State
from tests.unit.train.test_save_and_load import Node, node

__all__ = ["node"]

ENV = {"ELASTICD_KEEPER": "k", "RANK": "0"}


class Standing:
    """A keeper that says how things stand."""

    def __init__(
        self, durable_step: int = -1, *, is_busy: bool = False, notes: tuple[str, ...] = ()
    ) -> None:
        self.answer = ms.Status(is_busy=is_busy, durable_step=durable_step, notes=notes)

    def __call__(self, name: str, *, limit_s: float) -> Self:
        return self

    def ask(self, question: ms.GetStatus, kind: type, *, timeout_s: float) -> ms.Status:
        return self.answer

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def nobody_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save_reminder, "_NEEDS_NONE", False)
    monkeypatch.setattr(client, "Client", Standing())


def said(env: dict[str, str] = ENV) -> str:
    written: list[str] = []
    remind(env, written.append)
    return "".join(written)


def test_rank_0_is_told_what_to_call() -> None:
    """In one line."""
    assert said() == (
        "elasticd: nothing was saved, though --checkpoint was given: call "
        "elasticd.checkpoint.load() before the training and elasticd.checkpoint.save(state, step) "
        "in it, or let elasticd.run do both.\n"
    )


@pytest.mark.parametrize(
    "env", [{"RANK": "0"}, {"ELASTICD_KEEPER": "k", "RANK": "1"}, {"ELASTICD_KEEPER": "k"}], ids=str
)
def test_other_ranks_and_jobs_without_checkpoints_are_told_nothing(env: dict[str, str]) -> None:
    """Nor what is no worker."""
    assert said(env) == ""


@pytest.mark.parametrize("keeper", [Standing(0), Standing(7), Standing(is_busy=True)])
def test_what_the_keeper_knows_of_was_saved(
    monkeypatch: pytest.MonkeyPatch, keeper: Standing
) -> None:
    """By a process that the script started."""
    monkeypatch.setattr(client, "Client", keeper)
    assert said() == ""


def test_save_that_failed_after_the_script_asked_last_is_told(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one of a script that does not wait for it: no later call asks the keeper."""
    assert save({"w": torch.ones(2)}, 3)
    monkeypatch.setattr(client, "Client", Standing(2, notes=("It is full.", "It is late.")))
    assert said() == "elasticd: It is full.\nelasticd: It is late.\n"
    assert said({**ENV, "RANK": "1"}) == ""


def test_keeper_that_is_away_delays_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known then, so nothing is told."""

    def gone(name: str, *, limit_s: float) -> Any:
        raise Unavailable("It does not answer.")

    monkeypatch.setattr(client, "Client", gone)
    assert said() == ""


def test_whoever_saves_is_told_nothing(node: Node) -> None:
    """`save`, also where there was no room for it."""
    assert save({"w": torch.ones(2)}, 3)
    assert said() == ""


def test_load_alone_saves_nothing_unless_it_found_what_to_go_on_from(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is called again after its end may have nothing left to train."""
    assert load() is None
    assert said() != ""
    monkeypatch.setattr(save_and_load, "_JOB", None)
    node.stock.store(9)
    assert load() is not None
    assert said() == ""


def test_dcps_writer_saves_too(tmp_path: Path) -> None:
    """To a URL of its own."""
    Writer(tmp_path, step=1)
    assert said() == ""


def test_elasticd_run_saves_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end says itself what was not saved."""
    monkeypatch.delenv("ELASTICD_AGENT", raising=False)
    run(lambda state, world: None, State(model=torch.nn.Linear(1, 1)))
    assert said() == ""

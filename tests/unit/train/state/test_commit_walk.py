"""How many of the project's files an ordinary commit enters, so that it stays a short walk."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch

from elasticd.channel.worker import FromWorker, ToWorker
from elasticd.train.data.loader import Loader
from elasticd.train.process_group.group import Group
from elasticd.train.session.agent_session import AgentSession
from elasticd.train.state.state import State, core_of
from tests.fixtures.patience import patience_s
from tests.fixtures.ranks import entered
from tests.fixtures.walk import Walk, walk_of
from tests.unit.train.state.state_case import world

MOST_FILES = 10
MOST_RETURNS = 5
"""How often the walk comes back to a file that it had left before."""

BEFORE = 21
"""So many commits are past what is only done at first; the next is none at which habits are looked
at."""


class SilentPort:
    """A connection to an agent that says and hears nothing."""

    def send(self, message: FromWorker, *, is_news: bool = False) -> None:
        pass

    def messages(self) -> Iterator[ToWorker]:
        return iter(())

    def close(self) -> None:
        pass


class Rows:
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(4)


@pytest.fixture
def session() -> Iterator[AgentSession]:
    """A session in a world with a process group of torch's."""
    made = AgentSession(SilentPort())
    group = Group(entered(0, 1, 0), backend="gloo", timeout_s=patience_s(20.0))
    group.form()
    made.use(group)
    yield made
    made.use(None)
    group.abort()
    group.close()


def test_ordinary_commit_enters_at_most_ten_files(session: AgentSession) -> None:
    """A script with all that most have: a model with buffers, a scheduler, values, and a loader."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    state = State(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        data=Loader(Rows(), 4),
        best=0.0,
        losses=[1.0],
    )
    core_of(state).enter(world(), session)
    walk = Walk([])
    for count, batch in zip(range(BEFORE + 1), state.data, strict=False):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if count < BEFORE:
            state.commit(loss=loss)
        else:
            walk = walk_of(partial(state.commit, loss=loss))
    core_of(state).leave()
    assert state.step == BEFORE + 1
    assert "train/process_group/group.py" in walk.stops, "it asks which collectives there were"
    assert walk.files <= MOST_FILES, walk.stops
    assert walk.returns <= MOST_RETURNS, walk.stops

"""What the daemon saved of an in-process job, stock DCP loads."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load

from elasticd.checkpoint import Reader
from tests.fixtures.saved_runs import STEPS_PER_EPOCH, SavedRuns


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_checkpoint_of_the_daemon_is_read_by_stock_dcp(tmp_path: Path) -> None:
    """Entries of `elasticd.State` are the keys; model and optimizer as their `state_dict` is."""
    runs = SavedRuns(tmp_path / "run")
    assert runs.run("--epochs", "1").code == 0
    runs.place.mark.wait_none_left()
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # So that there are places for what momentum is.
    state: dict[str, Any] = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    reader = Reader(runs.url)
    load(state, storage_reader=reader)
    assert reader.snapshot.step == STEPS_PER_EPOCH
    weights = [x for each in model.state_dict().values() for x in each.flatten().tolist()]
    assert weights == runs.weights()
    assert state["optimizer"]["param_groups"][0]["lr"] == 0.05
    assert all(each["momentum_buffer"].any() for each in state["optimizer"]["state"].values())

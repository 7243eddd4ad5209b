"""A heal of a GiB that is not plain in memory holds little of it on the host, on either side."""

import re
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from elasticd.tensors.tree import Tree, flatten, unflatten
from elasticd.train.process_group.group import Group
from elasticd.train.sync.newest_state import SourceDecision
from elasticd.train.sync.state_fetch import fetch_state
from tests.fixtures.patience import patience_s
from tests.fixtures.ranks import Cast, entered

MIB = 1 << 20
TENSORS, ROWS, ROW = 4, 64, MIB // 4
LIMIT_BYTES = 256 * MIB


class Turned:
    """A GiB of parameters whose memory is in another order than their elements, as on a GPU."""

    def __init__(self, value: float, *, missing: int = 0) -> None:
        self.entries: dict[str, Any] = {
            f"w{number}": torch.full((4, ROWS, ROW), value + number).transpose(0, 1)
            for number in range(TENSORS - missing)
        }
        self.is_broken = False

    def tree(self) -> Tree:
        return flatten("state", self.entries)

    def modules(self) -> dict[str, torch.nn.Module]:
        return {}

    def retie(self, skeleton: str) -> None:
        pass

    def load(self, source: Tree, position: tuple[int, int]) -> None:
        self.entries = unflatten(source)


def resident(kind: str) -> int:
    """Bytes in memory now (VmRSS), or the most since `forget_peak` (VmHWM)."""
    found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def play(line: Connection, rank: int, port: int, missing: int) -> None:
    state = Turned(1.0 if rank else 2.0, missing=missing if rank else 0)
    group = Group(entered(rank, 2, port), timeout_s=patience_s(20.0))
    group.form()
    Path("/proc/self/clear_refs").write_text("5")  # From here on the peak is counted.
    before = resident("VmRSS")
    healed = fetch_state(group, SourceDecision(position=(5, 0), sources=(0,), targets=(1,)), state)
    new = missing * 4 * ROWS * ROW * 4 if rank else 0
    line.send((resident("VmHWM") - before - new, healed.received_bytes))
    group.close()
    line.send([bool((each == 2.0 + n).all()) for n, each in enumerate(state.tree().tensors)])


def test_heal_of_a_gib_holds_little_of_it_on_the_host() -> None:
    """A node whose GPUs all heal at once would need their whole memory otherwise."""
    with Cast() as cast:
        _, port = cast.store()
        ranks = [cast.start(play, rank, port, 1) for rank in range(2)]
        beyond = [each.hear() for each in ranks]
        assert beyond[1][1] == TENSORS * 4 * ROWS * ROW * 4 == 1 << 30
        assert [bytes_ for bytes_, _ in beyond if bytes_ > LIMIT_BYTES] == []
        assert [each.hear() for each in ranks] == [[True] * TENSORS] * 2

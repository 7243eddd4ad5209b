"""Two ranks on one card, over Gloo: killed, healed, saved and restored, with tensors there."""

import re
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from elasticd.tensors.tree import Tree, flatten, unflatten
from elasticd.train.process_group.group import Group
from elasticd.train.sync.newest_state import SourceDecision
from elasticd.train.sync.state_fetch import fetch_state
from tests.fixtures.local_run import LocalRun
from tests.fixtures.ranks import Cast, entered
from tests.gpu.card import CARD, PATIENCE_S, note

SCRIPT = Path(__file__).parent / "scripts" / "shared_card.py"
STATE_BYTES = 1 << 30
LIMIT_BYTES = 256 << 20


class OnCard:
    """A GiB of parameters."""

    is_broken = False

    def __init__(self, value: float) -> None:
        count = STATE_BYTES // 16
        self.entries = {f"w{n}": torch.full((count,), value, device=CARD) for n in range(4)}

    def tree(self) -> Tree:
        return flatten("state", self.entries)

    def retie(self, skeleton: str) -> None:
        pass

    def load(self, source: Tree, position: tuple[int, int]) -> None:
        self.entries = unflatten(source)

    def modules(self) -> dict[str, torch.nn.Module]:
        return {}


def resident(kind: str) -> int:
    found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def heal_on_card(line: Connection, rank: int, port: int) -> None:
    state = OnCard(1.0 if rank else 2.0)
    group = Group(entered(rank, 2, port), device=CARD, backend="gloo", timeout_s=PATIENCE_S)
    group.form()
    torch.empty(1, pin_memory=True)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    healed = fetch_state(group, SourceDecision(position=(5, 0), sources=(0,), targets=(1,)), state)
    line.send((resident("VmHWM") - before, healed.copy_s))
    group.close()
    line.send([bool((tensor == 2.0).all()) for tensor in state.entries.values()])


def test_heal_of_a_gib_holds_little_of_it_on_the_host() -> None:
    """On either side."""
    with Cast() as cast:
        _, port = cast.store()
        ranks = [cast.start(heal_on_card, rank, port) for rank in range(2)]
        (source, _), (target, copy_s) = (each.hear(PATIENCE_S) for each in ranks)
        note("heal of 1 GiB: host memory of the source", source / (1 << 20), "MiB")
        note("heal of 1 GiB: host memory of the target", target / (1 << 20), "MiB")
        note("heal of 1 GiB", copy_s, "s")
        assert [each.hear(PATIENCE_S) for each in ranks] == [[True] * 4] * 2
        assert max(source, target) <= LIMIT_BYTES


def test_killed_worker_is_replaced_and_healed(tmp_path: Path) -> None:
    """The survivor keeps its process, and both end with the same weights."""
    run = LocalRun(tmp_path)
    ended = run.run("--local-agents", "2", str(SCRIPT), "--die-at", "20")
    assert ended.code == 0, ended.err
    written = "".join(file.read_text() for file in run.runs.rglob("*.out"))
    weights = re.findall(r"weights (\S+)", written)
    assert len(weights) == 2 and len(set(weights)) == 1, written


def test_state_is_restored_from_what_was_saved(tmp_path: Path) -> None:
    """The second run goes on where the first ended."""
    checkpoint = ("--checkpoint", str(tmp_path / "saved"), "--checkpoint-every", "10steps")
    for steps in (30, 60):
        folder = tmp_path / f"run-{steps}"
        folder.mkdir()
        run = LocalRun(folder)
        ended = run.run("--local-agents", "2", *checkpoint, str(SCRIPT), "--steps", str(steps))
        assert ended.code == 0, ended.err
    begun = [int(step) for step in re.findall(r"from step (\d+)", ended.out)]
    assert begun and min(begun) >= 30, ended.out

"""What the soak says about the checkpoints that a run left."""

from pathlib import Path

from chaos.verdict.saved import SAVED_FOLDER, examine, judged
from tests.unit.checkpoint.stock_case import Maker


def made(folder: Path) -> Path:
    """A run's folder with two checkpoints."""
    Maker.of(folder / SAVED_FOLDER, steps=2)
    return folder


def test_whole_checkpoints_hold(tmp_path: Path) -> None:
    """Each was read, and the later one is of a later step."""
    examine(made(tmp_path))
    (finding,) = judged(tmp_path)
    assert finding.holds and finding.checked == 3


def test_damaged_checkpoint_breaks_the_rule(tmp_path: Path) -> None:
    """One bit is enough, and the finding names where."""
    folder = made(tmp_path)
    part = sorted(folder.glob(f"{SAVED_FOLDER}/steps/*/*.bin"))[0]
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    examine(folder)
    (finding,) = judged(folder)
    assert not finding.holds
    assert part.name in finding.evidence[0]


def test_entry_that_cannot_be_read_breaks_the_rule(tmp_path: Path) -> None:
    """The log is the truth, so each of its entries counts."""
    folder = made(tmp_path)
    (folder / SAVED_FOLDER / "commits" / "000000000002.json").write_bytes(b"{}")
    examine(folder)
    (finding,) = judged(folder)
    assert finding.broken == 1


def test_run_without_checkpoints_says_nothing(tmp_path: Path) -> None:
    examine(tmp_path)
    assert judged(tmp_path) == ()

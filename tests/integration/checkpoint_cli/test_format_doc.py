"""The format as docs/checkpoint-format.md tells it: its code restores what elasticd wrote."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from elasticd.checkpoint.commit.read_lease import GRACE_S
from elasticd.checkpoint.format import entry, manifest
from elasticd.checkpoint.format.layout import entry_name
from elasticd.checkpoint.retention.deletion import apply_retention
from elasticd.checkpoint.retention.policy import Retention
from elasticd.tensors.tree import flatten
from tests.fixtures.patience import patience_s
from tests.unit.checkpoint.stock_case import Maker, state_at

DOC = Path(__file__).parents[3] / "docs" / "checkpoint-format.md"
LINES = 30


def by_hand(folder: Path, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run the code of the document where neither torch nor elasticd can be imported."""
    (code,) = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= LINES
    program = (
        "import sys; sys.modules.update(torch=None, elasticd=None)\n"
        f"{code}\n"
        f"header, tensors = restore({str(folder)!r})\n"
        "numpy.savez('tensors.npz', **{str(i): t for i, t in enumerate(tensors)})\n"
        "print(json.dumps(header))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience_s(100.0),
        cwd=scratch,
    )


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker.of(tmp_path / "run", steps=4)


def test_thirty_lines_restore_the_newest_checkpoint(maker: Maker, tmp_path: Path) -> None:
    """Bit for bit, after a removal has become the newest entry of the log."""
    state = {**state_at(50), "large": torch.randn(2500, 1000), "half": torch.randn(5, 5).half()}
    state["complex"] = torch.randn(3, dtype=torch.complex64)
    state["float8"] = torch.randn(4, 4).to(torch.float8_e5m2)
    maker.save(50, state, count=3)
    apply_retention(maker.bucket, maker.log, Retention(last=2))
    done = by_hand(tmp_path / "run", tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["world_size"] == 3
    wanted = flatten("state", state)
    assert json.loads(done.stdout)["skeleton"] == wanted.skeleton
    found = np.load(tmp_path / "tensors.npz")
    assert len(found.files) == len(wanted.tensors) == 10
    for index, tensor in enumerate(wanted.tensors):
        assert found[str(index)].shape == tuple(tensor.shape)
        raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        assert found[str(index)].tobytes() == raw


def test_thirty_lines_see_damage(maker: Maker, tmp_path: Path) -> None:
    """In an entry, in the manifest and in a part."""
    folder = tmp_path / "run" / maker.log.entry(5).snapshot.folder
    for path in (tmp_path / "run" / entry_name(5), folder / "manifest.json", *folder.glob("*.bin")):
        good = path.read_bytes()
        bad = bytearray(good)
        bad[len(bad) // 3] ^= 1
        path.write_bytes(bad)
        done = by_hand(tmp_path / "run", tmp_path)
        assert done.returncode == 1 and "AssertionError" in done.stderr, path
        path.write_bytes(good)
    assert by_hand(tmp_path / "run", tmp_path).returncode == 0


def test_the_document_names_every_field(maker: Maker, tmp_path: Path) -> None:
    """A field that is new must be told of."""
    said = DOC.read_text()
    snapshot = maker.log.entry(5).snapshot
    texts = [tmp_path / "run" / entry_name(1), tmp_path / "run" / entry_name(5)]
    texts += list((tmp_path / "run" / snapshot.folder).glob("*.json"))
    fields = set()
    for path in texts:
        found = json.loads(path.read_text())
        fields |= {*found, *(found.get("header") or {})}
    assert len(fields) > 20
    assert [field for field in sorted(fields) if f"`{field}`" not in said] == []
    assert [name for name in manifest.DTYPE_BYTES if name not in said] == []
    assert [kind for kind in entry.LogEntryKind if f"`{kind}`" not in said] == []


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("an entry; a manifest or fragment | 4 MiB; 256 MiB",
         (entry.ENTRY_LIMIT_BYTES >> 20, manifest.TEXT_LIMIT_BYTES >> 20) == (4, 256)),
        ("100,000 numbers and ranges", entry.ROWS_LIMIT == 100_000),
        ("of 100,000,000 entries; 1,000", entry.KEPT_LIMIT == 100_000_000),
        ("entries; 1,000 texts", entry.FORMER_LIMIT == 1000),
        ("1,000,000, 1,000,000, 10,000,000",
         (manifest.TENSOR_LIMIT, manifest.PART_LIMIT, manifest.PIECE_LIMIT)
         == (10**6, 10**6, 10**7)),
        ("5 GiB", manifest.PART_LIMIT_BYTES == 5 << 30),
        ("64; 2^48", (manifest.DIMENSION_LIMIT, manifest.ELEMENT_LIMIT) == (64, 1 << 48)),
        ("4,194,304", manifest.BLOCK_BYTES == 4_194_304),
        ("until an hour after", GRACE_S == 3600),
    ],
)  # fmt: skip
def test_the_limits_in_the_document_are_those_of_the_code(said: str, value: bool) -> None:
    """Whichever changes, the other must follow."""
    assert said in DOC.read_text() and value

"""An export is loaded by those who do not have elasticd, through the real command.

Once for each format the command is started as a person starts it. The others are forked with torch.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fixtures.forked_python import ForkedPython, forked_python
from tests.fixtures.patience import patience_s
from tests.unit.checkpoint.stock_case import Maker, same, state_at

LOADERS = {
    "torch": """
loaded = torch.load(folder + "/checkpoint.pt", weights_only=True)
""",
    "safetensors": """
import json, safetensors.torch
loaded = safetensors.torch.load_file(folder + "/model.safetensors")
loaded["state.json"] = json.load(open(folder + "/state.json"))
""",
    "dcp": """
import torch.distributed.checkpoint as dcp
loaded = {
    "model": {"weight": torch.zeros(300, 1000), "bias": torch.zeros(7)},
    "optimizer": {
        "state": {0: {"step": torch.zeros(()),
                      "exp_avg": torch.zeros(300, 1000, dtype=torch.bfloat16)}},
        "param_groups": [{"lr": 0.0, "betas": (0.0, 0.0), "params": [9, 9]}],
    },
    "seen": torch.zeros(3, dtype=torch.bool), "empty": torch.ones(0, 3),
    "note": "", "worst": 0.0, "nothing": 1,
}
dcp.load(loaded, checkpoint_id=folder, no_dist=True)
""",
}


MAIN = "import sys; from elasticd.cli.main import main; sys.exit(main(sys.argv[1:]))"
Done = subprocess.CompletedProcess[str]


def elasticd(*argv: str) -> Done:
    """Start the command as a person does; it succeeds."""
    done = subprocess.run(
        [sys.executable, "-m", "elasticd.cli", "checkpoint", *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience_s(100.0),
    )
    assert done.returncode == 0, done.stderr
    return done


class Forked:
    """The same, forked from a process that has torch."""

    def __init__(self, python: ForkedPython) -> None:
        self._python = python

    def elasticd(self, *argv: str, first: str = "", expect: int = 0) -> Done:
        """`first`: code that runs before anything of elasticd is imported."""
        done = self._python.run(f"{first}\n{MAIN}", "checkpoint", *argv)
        assert done.returncode == expect, done.stderr
        return done

    def loaded(self, form: str, folder: Path, scratch: Path) -> Any:
        """Load in a process in which elasticd cannot be imported."""
        target = scratch / "loaded.pt"
        code = (
            "import sys, warnings; warnings.simplefilter('ignore'); sys.modules['elasticd'] = None;"
            f"import torch; folder = {str(folder)!r}\n{LOADERS[form]}\n"
            f"torch.save(loaded, {str(target)!r})"
        )
        done = self._python.run(code, folder=scratch)
        assert done.returncode == 0, done.stderr
        return torch.load(target, weights_only=True)


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forked]:
    with forked_python(tmp_path_factory.mktemp("forked")) as python:
        yield Forked(python)


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Three checkpoints: numbers 2 to 4, steps 10 to 30."""
    return Maker.of(tmp_path_factory.mktemp("export") / "run", steps=3)


def test_torch_loads_what_was_saved(forked: Forked, maker: Maker, tmp_path: Path) -> None:
    """With all container types, and without running code."""
    done = elasticd("export", maker.url, "3", "--format", "torch", "--to", f"{tmp_path}/out/x")
    assert "torch.load" in done.stdout and f"{tmp_path}/out/x/checkpoint.pt" in done.stdout
    found = forked.loaded("torch", tmp_path / "out" / "x", tmp_path)
    assert same(found, state_at(20))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["x"]


def test_safetensors_has_the_tensors_and_a_text_has_the_rest(
    forked: Forked, maker: Maker, tmp_path: Path
) -> None:
    """By flat names; readable by whoever may read the folder's other files."""
    elasticd(
        "export", maker.url, "--step", "10", "--format", "safetensors", "--to", f"{tmp_path}/x"
    )
    found = forked.loaded("safetensors", tmp_path / "x", tmp_path)
    said, state = found.pop("state.json"), state_at(10)
    assert same(found["state.model.weight"], state["model"]["weight"])
    moment = state["optimizer"]["state"][0]["exp_avg"]
    assert same(found["state.optimizer.state.0.exp_avg"], moment)
    assert len(found) == 6
    assert (said["step"], said["job"], said["state"]["note"]) == (10, "digits", "plain")
    assert said["state"]["model"]["bias"] == {"tensor": "state.model.bias"}
    modes = {path.name: path.stat().st_mode for path in (tmp_path / "x").iterdir()}
    assert modes["model.safetensors"] == modes["state.json"]


def test_stock_dcp_loads_what_was_saved(forked: Forked, maker: Maker, tmp_path: Path) -> None:
    """Into tensors that are there, as dcp.load does; plain values too."""
    target = tmp_path / "there"
    target.mkdir()
    done = elasticd("export", maker.url, "--format", "dcp", "--to", str(target))
    assert done.stderr == ""
    found, state = forked.loaded("dcp", target, tmp_path), state_at(30)
    assert same(found.pop("model"), dict(state.pop("model")))
    assert same(found, state)


def test_tensors_of_one_path_are_told_apart(forked: Forked, tmp_path: Path) -> None:
    """A key with a dot in it may look like two keys."""
    maker = Maker.of(tmp_path / "run")
    maker.save(1, {"a.b": torch.ones(2), "a": {"b": torch.zeros(3)}}, count=1)
    forked.elasticd("export", maker.url, "--format", "safetensors", "--to", f"{tmp_path}/x")
    found = forked.loaded("safetensors", tmp_path / "x", tmp_path)
    state = found["state.json"]["state"]
    assert same(found[state["a.b"]["tensor"]], torch.ones(2))
    assert same(found[state["a"]["b"]["tensor"]], torch.zeros(3))


def test_a_state_that_is_one_tensor_can_be_exported(forked: Forked, tmp_path: Path) -> None:
    """Not every state is a dict."""
    maker = Maker.of(tmp_path / "run")
    maker.save(1, torch.arange(5), count=1)
    for form in ("torch", "dcp", "safetensors"):
        forked.elasticd("export", maker.url, "--format", form, "--to", f"{tmp_path}/{form}")
    assert same(torch.load(tmp_path / "torch" / "checkpoint.pt"), torch.arange(5))


def test_a_damaged_checkpoint_is_not_exported(forked: Forked, tmp_path: Path) -> None:
    """Exit 1, the part and the checkpoint before are named, and no folder is left."""
    maker = Maker.of(tmp_path / "run", steps=2)
    part = sorted((tmp_path / "run" / "steps").rglob("*.bin"))[-1]
    data = bytearray(part.read_bytes())
    data[100] ^= 1
    part.write_bytes(data)
    done = forked.elasticd(
        "export", maker.url, "--format", "torch", "--to", f"{tmp_path}/x", expect=1
    )
    assert part.name in done.stderr and done.stderr.count("\n") == 1
    assert "The one before is checkpoint" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_missing_safetensors_is_named(forked: Forked, maker: Maker, tmp_path: Path) -> None:
    """With the command that installs it."""
    argv = ["export", maker.url, "--format", "safetensors", "--to", f"{tmp_path}/x"]
    missing = "import sys; sys.modules['safetensors'] = None"
    done = forked.elasticd(*argv, first=missing, expect=2)
    assert "pip install safetensors" in done.stderr
    assert not (tmp_path / "x").exists()


def test_a_folder_that_cannot_be_written_is_said(
    forked: Forked, maker: Maker, tmp_path: Path
) -> None:
    """A file stands where a folder would have to be made."""
    (tmp_path / "file").write_text("")
    done = forked.elasticd(
        "export", maker.url, "--format", "torch", "--to", f"{tmp_path}/file/x", expect=2
    )
    assert "file/x" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("form", ["torch", "dcp", "safetensors"])
def test_a_full_disk_is_said(forked: Forked, maker: Maker, tmp_path: Path, form: str) -> None:
    """In one sentence, whatever torch makes of it; nothing is left."""
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))"
    argv = ["export", maker.url, "--format", form, "--to", f"{tmp_path}/x"]
    done = forked.elasticd(*argv, first=full, expect=2)
    assert "free some space" in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_all_that_a_state_may_hold_is_loaded_by_stock_torch(forked: Forked, tmp_path: Path) -> None:
    """Without running code: weights_only."""
    maker = Maker.of(tmp_path / "run")
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    state = {
        "model": module.state_dict(),
        "milestones": Counter({5: 1, 9: 2}),
        "size": torch.Size([2, 3]),
        "type": torch.bfloat16,
        "device": torch.device("cpu"),
        "mixed": [1, 2.5, "x", None, True, (), {}, [float("inf")]],
        7: {"number": "key"},
    }
    maker.save(1, state, count=1)
    forked.elasticd("export", maker.url, "--format", "torch", "--to", f"{tmp_path}/x")
    found = forked.loaded("torch", tmp_path / "x", tmp_path)
    assert same(found, state)
    assert vars(found["model"]) == vars(module.state_dict())
    assert "_metadata" in vars(found["model"])
    module.load_state_dict(found["model"])
    forked.elasticd("show", maker.url, "--all")
    for form in ("dcp", "safetensors"):
        forked.elasticd("export", maker.url, "--format", form, "--to", f"{tmp_path}/{form}")


def test_every_dtype_and_cut_comes_back(forked: Forked, tmp_path: Path) -> None:
    """Tensors over several shares, and types that numpy does not know."""
    maker = Maker.of(tmp_path / "run")
    state = {
        "large": torch.randn(3000, 400),
        "one_row": torch.randn(1, 1_200_000),
        "deep": torch.randn(1, 7, 200_000),
        "half": torch.randn(1000, 1000).half(),
        "complex": torch.randn(300, 1000, dtype=torch.complex64),
        "float8": torch.randn(2000, 1000).to(torch.float8_e4m3fn),
        "unsigned": torch.arange(100).to(torch.uint16),
        "scalar": torch.tensor(3.5, dtype=torch.float64),
    }
    maker.save(1, state, count=5)
    forked.elasticd("export", maker.url, "--format", "torch", "--to", f"{tmp_path}/x")
    found = torch.load(tmp_path / "x" / "checkpoint.pt", weights_only=True)
    bits = {name: tensor.view(torch.uint8) for name, tensor in state.items() if tensor.ndim}
    assert same({name: found[name].view(torch.uint8) for name in bits}, bits)
    assert same(found["scalar"], state["scalar"])
    (listed,) = json.loads(forked.elasticd("ls", maker.url, "--json").stdout)
    assert listed["world_size"] == 5

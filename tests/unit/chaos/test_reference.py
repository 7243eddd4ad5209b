"""The undisturbed run beside which a disturbed one is judged."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.error import ChaosError
from chaos.plan.scenario import parse
from chaos.runner import RANKS_FILE, reference


@pytest.mark.parametrize("end", ["too long", "failed"])
def test_reference_that_does_not_come_to_its_end_says_so_and_leaves_no_records(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with other work: a kept history is not compared with half of a run."""

    def run(argv: list[str], **more: Any) -> SimpleNamespace:
        (Path(more["cwd"]) / RANKS_FILE).write_text("half of it")
        if end == "too long":
            raise subprocess.TimeoutExpired(argv, more["timeout"])
        return SimpleNamespace(returncode=1, stderr="no torch")

    monkeypatch.setattr(subprocess, "run", run)
    scenario = parse({}, name="none")
    site: Any = SimpleNamespace(folder=tmp_path, scenario=scenario, environ=dict)
    with pytest.raises(ChaosError, match="took longer" if end == "too long" else "no torch"):
        reference(site, 600)
    assert not (tmp_path / "reference").exists()

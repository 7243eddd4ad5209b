"""The kinds for somebody's own cluster are a part of those of the testbed, and import no torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.cluster.fault import TRAITS, Kind
from chaos.plan.fault import Kind as AnyKind
from chaos.why.expectation import EXPECTED
from tests.fixtures.patience import patience_s

ROOM = Path(__file__).parents[4] / "chaos" / "cluster"
WITHOUT = """
import importlib, sys
for name in ("torch", "torchft", "numpy"):
    sys.modules[name] = None  # What imports it raises.
for name in sys.argv[1:]:
    importlib.import_module(name)
others = {name for name in sys.modules if name.startswith("chaos.")}
print(sorted(name for name in others if not name.startswith(("chaos.cluster", "chaos.error"))))
"""


@pytest.mark.parametrize("kind", sorted(set(Kind) & set(AnyKind)))
def test_what_is_right_is_the_same_as_in_the_testbed(kind: str) -> None:
    assert TRAITS[Kind(kind)].reasons == EXPECTED[AnyKind(kind)].reasons


def test_every_kind_has_its_traits() -> None:
    assert set(TRAITS) == set(Kind)
    assert set(Kind) - set(AnyKind) == {"pod-evict"}


def test_room_needs_no_torch_and_nothing_else_of_chaos() -> None:
    """It is part of the image that has neither (deploy/docker/control.Dockerfile)."""
    names = [f"chaos.cluster.{path.stem}" for path in ROOM.glob("*.py")]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *sorted(set(names) - {"chaos.cluster.__init__"})],
        capture_output=True,
        text=True,
        cwd=ROOM.parents[1],
        timeout=patience_s(60.0),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


PURE = ("fault", "observation", "recovery", "decide", "verdict")


@pytest.mark.parametrize("name", PURE)
def test_what_judges_imports_nothing_of_what_is_judged(name: str) -> None:
    text = (ROOM / f"{name}.py").read_text()
    words = ("import elasticd", "from elasticd", "import time", "import random", "import threading")
    assert not [word for word in words if word in text]

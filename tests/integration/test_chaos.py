"""The fault runner on real processes: a subset of its scenarios, and that it leaves nothing.

The long ones run by hand, `python -m chaos run chaos/scenarios/X.toml`, as does the soak.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.plan.scenario import load
from chaos.processes import network
from chaos.run import run
from chaos.verdict.report import to_text
from tests.fixtures.patience import patience_s
from tests.fixtures.process_mark import ProcessMark

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "chaos" / "scenarios"
SEED = 1
SUBSET = (
    "agent-stop",
    "during-recovery",
    "node-kill",
    "poison",
    "restart-kill",
    "worker-kill",
    "worker-raise",
    "worker-stop",
)
WITH_NETWORK = ("delay", "pair-cut", "pair-cut-forming", "pair-cut-stall", "partition")
"""Not skipped but not there, where this machine has no network namespaces."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SUBSET + (WITH_NETWORK if network.is_possible() else ()))
def test_every_rule_holds(name: str, tmp_path: Path) -> None:
    said: list[str] = []
    report = run(load(FOLDER / f"{name}.toml"), seed=SEED, say=said.append, keep=tmp_path / "kept")
    assert report["holds"], "\n".join([*said, to_text(report)])


@pytest.mark.slow
def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    mark = ProcessMark()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    before = namespaces()
    process = subprocess.Popen(
        [sys.executable, "-m", "chaos", "run", "restart-kill"],
        cwd=ROOT,
        env={**mark.environ(), "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = process.stderr.readline()  # The first fault struck: everything runs.
    assert "worker-kill" in said, said
    assert len(mark.processes()) > 5
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=patience_s(60.0))
    assert process.returncode == 130, rest
    assert rest.splitlines()[-1] == "chaos: interrupted; everything was ended."
    mark.wait_none_left()
    assert list(temporary.iterdir()) == []
    assert namespaces() == before


@pytest.mark.slow
def test_a_killed_runner_takes_its_processes_with_it(tmp_path: Path) -> None:
    mark = ProcessMark()
    process = subprocess.Popen(
        [sys.executable, "-m", "chaos", "run", "restart-kill"],
        cwd=ROOT,
        env={**mark.environ(), "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    process.stderr.readline()
    process.kill()
    process.communicate(timeout=patience_s(60.0))
    mark.wait_none_left()


@pytest.mark.skipif(not network.is_possible(), reason=network.why_impossible())
def test_a_cut_node_is_not_reached_and_a_late_one_late() -> None:
    net = network.Network(["a", "b"], dict(os.environ))
    try:
        assert connect_s(net, "a", net.address("b")) is not None
        net.cut("a", is_deaf=False)
        assert connect_s(net, "a", net.address("b"), limit_s=2.0) is None
        assert connect_s(net, "b", net.host_address) is not None
        net.repair("a")
        net.delay("b", 0.2)
        took_s = connect_s(net, "a", net.address("b"))
        assert took_s is not None and took_s >= 0.4, "there and back"
    finally:
        net.close()
    assert not namespaces()


CONNECT = """
import socket, sys, time
began_s = time.monotonic()
with socket.socket() as sock:
    sock.settimeout(float(sys.argv[2]))
    try:
        sock.connect((sys.argv[1], 9))
    except ConnectionRefusedError:
        print(time.monotonic() - began_s)
    except TimeoutError:
        pass
"""


def connect_s(
    net: network.Network, node: str, address: str, *, limit_s: float = 60.0
) -> float | None:
    """How long a refusal takes; None: there is no answer."""
    done = subprocess.run(
        [*net.command(node), sys.executable, "-c", CONNECT, address, f"{patience_s(limit_s)}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout) if done.stdout else None


def namespaces() -> list[str]:
    """Name those of this process: others may make and remove theirs beside it."""
    return [path.name for path in Path("/run/netns").glob(f"chaos-{os.getpid()}-*")]

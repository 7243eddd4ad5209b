"""A script that was written for torchrun, by somebody who never heard of us, survives a worker.

`accelerate/test_utils/scripts/test_script.py` of the PyPI package accelerate (tried with 1.15.0):
900 lines that check process control, data loaders and training against a single process, over
Gloo on the CPU.
"""

from pathlib import Path

import accelerate

from tests.fixtures.cluster import cluster_on

SCRIPT = Path(accelerate.__file__).parent / "test_utils" / "scripts" / "test_script.py"
MIDDLE = "**DataLoader integration test**"
END = "**Test reinstantiated state**"
KILLED = f"""
import builtins, os, runpy, signal

IS_KILLED = os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
plain = builtins.print

def told(*words, **how):
    plain(*words, **how, flush=True)
    if IS_KILLED and any("{MIDDLE}" in str(word) for word in words):
        os.kill(os.getpid(), signal.SIGKILL)

builtins.print = told
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""
"""The script, and a SIGKILL to rank 1 of the first world in its middle.

From there to the end it takes less than a second: who waits for what it writes may be late.
"""


def test_accelerates_own_script_is_killed_and_recovers(tmp_path: Path) -> None:
    """One worker is killed in the middle of it; the second try comes to the end, with exit 0."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    with cluster_on(tmp_path) as cluster:
        for name in ("a", "b"):
            cluster.daemon(name)
        ended = cluster.call(
            "run", "--job", "foreign", "--nnodes", "2", "--env", "ACCELERATE_USE_CPU=1", str(script)
        ).wait()
        logs = cluster.runs / "foreign"
    assert ended.code == 0, ended.err
    assert MIDDLE in _text(logs, 1, rank=1)
    assert END not in _text(logs, 1)
    assert END in _text(logs, 2)


def _text(logs: Path, generation: int, rank: int = 0) -> str:
    path = logs / f"gen-{generation}" / f"rank-{rank}.out"
    return path.read_text() if path.exists() else ""

"""A script that was written for torchrun, by somebody who never heard of us, survives a worker.

`accelerate/test_utils/scripts/test_script.py` of the PyPI package accelerate (tried with 1.15.0):
900 lines that check process control, data loaders and training against a single process, over
Gloo on the CPU.
"""

import os
import signal
from pathlib import Path

import accelerate

from tests.fixtures.cluster import cluster_on, until

SCRIPT = Path(accelerate.__file__).parent / "test_utils" / "scripts" / "test_script.py"
MIDDLE = "**DataLoader integration test**"
END = "**Test reinstantiated state**"


def test_accelerates_own_script_is_killed_and_recovers(tmp_path: Path) -> None:
    """One worker is killed in the middle of it; the second try comes to the end, with exit 0."""
    with cluster_on(tmp_path) as cluster:
        daemons = [cluster.daemon(name) for name in ("a", "b")]
        call = cluster.call(
            "run", "--job", "foreign", "--nnodes", "2", "--env", "ACCELERATE_USE_CPU=1", str(SCRIPT)
        )
        logs = cluster.runs / "foreign"
        until(lambda: MIDDLE in _text(logs, 1) or call.process.poll(), lambda: call.err)
        os.kill(daemons[1].workers(1)[0], signal.SIGKILL)
        ended = call.wait()
    assert ended.code == 0, ended.err
    assert END not in _text(logs, 1)
    assert END in _text(logs, 2)


def _text(logs: Path, generation: int) -> str:
    path = logs / f"gen-{generation}" / "rank-0.out"
    return path.read_text() if path.exists() else ""

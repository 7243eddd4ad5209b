"""How `elasticd.run` is called: rightly without an agent, and wrongly."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.channel.pool import Exited, Raised
from elasticd.channel.worker import Finished
from tests.fixtures.fake_agent import FakeAgent
from tests.fixtures.patience import patience_s
from tests.fixtures.pool import PoolDriver, pool

__all__ = ["pool"]

PRELUDE = """
import torch, elasticd
model = torch.nn.Linear(2, 1)
state = elasticd.State(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    data=elasticd.Loader(torch.utils.data.TensorDataset(torch.ones(8, 2)), batch_size=4),
)
def train(state, world):
    for epoch in state.epochs(1):
        for (x,) in state.data:
            loss = model(x).mean()
            state.optimizer.zero_grad(); loss.backward(); state.optimizer.step()
            state.commit(loss=loss)
"""

OWN_GROUP = """
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
elasticd.run(train, state)
"""

MISUSES = {
    "torchrun": ("elasticd.run(train, state)", "elasticd.run does not work under torchrun"),
    "no function": ("elasticd.run(state, train)", "wants a function"),
    "no state": ("elasticd.run(train, model)", "wants an elasticd.State"),
    "arguments": ("elasticd.run(lambda state: 0, state)", "define it as"),
    "nested": ("elasticd.run(lambda s, w: elasticd.run(train, s), state)", "running already"),
    "own group": (
        OWN_GROUP,
        "initialized already",
    ),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_explained(pool: PoolDriver, tmp_path: Path, name: str) -> None:
    code, words = MISUSES[name]
    (tmp_path / "misuse.py").write_text(PRELUDE + code)
    env = {**os.environ, **({"RANK": "0"} if name == "torchrun" else {})}
    end = pool.run(tmp_path / "misuse.py", folder=tmp_path, env=env)
    assert end.code == 1
    raised = pool.wait_for(Raised, end.worker)
    assert raised.exception.startswith("CallError: ") and words in raised.exception


def test_run_may_be_called_again_without_an_agent(pool: PoolDriver, tmp_path: Path) -> None:
    """In a notebook, say; the second one has nothing left to do."""
    (tmp_path / "twice.py").write_text(
        PRELUDE + "elasticd.run(train, state)\nelasticd.run(train, state)\nprint(state.step)"
    )
    end = pool.run(tmp_path / "twice.py", folder=tmp_path)
    assert end.code == 0, (tmp_path / f"{end.worker}.err").read_text()
    assert (tmp_path / f"{end.worker}.out").read_text().splitlines()[-1] == "2"


def test_second_run_of_a_job_is_refused(pool: PoolDriver, tmp_path: Path) -> None:
    """Other ranks may be gone by then."""
    (tmp_path / "twice.py").write_text(
        PRELUDE + "elasticd.run(train, state)\nelasticd.run(train, state)\n"
    )
    with FakeAgent.listening(pool, tmp_path) as agent:
        workers = agent.start(tmp_path / "twice.py")
        agent.enter(1, workers)
        workers[0].wait_for(Finished)
        raised = pool.wait_for(Raised, workers[0].name)
    assert "has returned already" in raised.exception


def test_counter_in_a_module_is_reported_once_by_one_rank(pool: PoolDriver, tmp_path: Path) -> None:
    """A failure would not put it back, and a new rank would begin at 0."""
    (tmp_path / "counts.py").write_text(
        PRELUDE.replace("epochs(1)", "epochs(20)").replace("loss = ", "model.calls += 1; loss = ")
        + "model.calls = 0\nelasticd.run(train, state)\n"
    )
    with FakeAgent.listening(pool, tmp_path) as agent:
        workers = agent.start(tmp_path / "counts.py", count=2)
        agent.enter(1, workers)
        for worker in workers:
            worker.wait_for(Finished)
            assert pool.wait_for(Exited, worker.name).code == 0
    said = [worker.err.count("each step changes model.calls, which") for worker in workers]
    assert said == [1, 0]


def test_ctrl_c_ends_a_world_of_one(tmp_path: Path) -> None:
    """As in any script: KeyboardInterrupt with the script's line."""
    # Many short sleeps: a signal that arrives just before one does not end it.
    naps = "import time; print('in', flush=True); [time.sleep(0.05) for _ in range(20_000)]"
    (tmp_path / "long.py").write_text(
        PRELUDE.replace("loss = ", f"{naps}; loss = ") + "elasticd.run(train, state)"
    )
    process = subprocess.Popen(
        [sys.executable, "long.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"in\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=patience_s(60.0))
    assert b"KeyboardInterrupt" in err and b"long.py" in err
    assert process.returncode in (-signal.SIGINT, 130, 1)


def test_import_is_cheap() -> None:
    """The command line and the agent import the package too."""
    code = "import sys, elasticd; dir(elasticd); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

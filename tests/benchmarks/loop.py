"""The script under test in the in-process mode: three lines of elasticd around DDP over Gloo.

It says on a datagram socket when it is ready to train, and after each commit:
`NAME SECONDS PID BEGAN RANK WORLD GENERATION STEP`. It ends itself when nobody listens any more.
BENCH_PAUSE_S: the wait in each step. BENCH_BALLAST_MIB: more state, which is in no gradient.
BENCH_WIDTH: of the hidden layer, so that a step has that many times 280 bytes of gradients.
"""

import os
import signal
import socket
import sys
import time
from typing import Any

BEGAN_S = time.monotonic()

import torch  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import elasticd  # noqa: E402

LIFE_LIMIT_S = 3600
"""Nothing of a benchmark outlives this, however it was lost."""
SAMPLES = 1_000_000
BATCH = 48
PAUSE_S = float(os.environ.get("BENCH_PAUSE_S", "0.01"))
"""Of each step: a step that computes for ever would measure the scheduler of a small machine."""
BALLAST_MIB = float(os.environ.get("BENCH_BALLAST_MIB", "0"))

WIDTH = int(os.environ.get("BENCH_WIDTH", "64"))

feed = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


class Numbers(torch.utils.data.Dataset[torch.Tensor]):
    """As many samples as wanted, in no memory."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((64,), (index % 997) / 997.0)


class Ballast(torch.nn.Module):
    """Weights that an optimizer owns and no gradient reaches; other ones in each process."""

    def __init__(self, mebibytes: float) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(os.getpid())
        count = int(mebibytes * 2**20 / 4)
        self.weight = torch.nn.Parameter(torch.rand(count, generator=generator))


def mark(name: str, rank: int = -1, world: int = 0, generation: int = 0, step: int = 0) -> None:
    text = f"{name} {time.monotonic()} {os.getpid()} {BEGAN_S} {rank} {world} {generation} {step}"
    try:
        feed.send(text.encode())
    except OSError:
        os._exit(0)  # Nobody measures any more; no exception, which would be a fault to recover.


def train(state: elasticd.State, world: elasticd.World) -> None:
    """Train until killed."""
    model = DistributedDataParallel(state.model)
    for _ in state.epochs(sys.maxsize):
        for batch in state.data:
            time.sleep(PAUSE_S)
            loss = model(batch).square().mean() * state.data.weight
            state.optimizer.zero_grad()
            loss.backward()
            state.optimizer.step()
            state.commit(loss=loss)
            mark("stepped", world.rank, world.size, world.generation, state.step)


def main() -> None:
    signal.alarm(LIFE_LIMIT_S)
    feed.connect(os.environ["BENCH_FEED"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, WIDTH), torch.nn.Linear(WIDTH, 4))
    entries: dict[str, Any] = {}
    if BALLAST_MIB:
        entries["ballast"] = Ballast(BALLAST_MIB)
    parameters = [each for part in (model, *entries.values()) for each in part.parameters()]
    state = elasticd.State(
        model=model,
        optimizer=torch.optim.SGD(parameters, lr=0.01),
        data=elasticd.Loader(Numbers(), batch_size=BATCH, seed=0),
        **entries,
    )
    mark("ready")
    elasticd.run(train, state)


if __name__ == "__main__":
    main()

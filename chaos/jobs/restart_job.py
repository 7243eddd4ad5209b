"""The same for restart mode: knows nothing of elasticd, begins from a checkpoint of each step.

Called as ledger_job.py. Rank 0 saves after every step, before the others may go on, so what is
applied is in the checkpoint. It shows what restart mode costs beside in-process mode.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from chaos.jobs.call import parse_args
from chaos.jobs.recorder import Recorder, digest_of
from chaos.jobs.task import Noisy, make_model, make_optimizer
from chaos.plan.fault import Point

CHECKPOINT = "newest.pt"


def main() -> None:
    """Train in restart mode, with a file for a checkpoint.

    Raises: RuntimeError: the scenario poisons a step.
    """
    args = parse_args()
    torch.set_num_threads(1)
    if "RANK" not in os.environ:  # plain python: a world of one
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    recorder = Recorder(args.folder)
    model = make_model()
    optimizer = make_optimizer(model)
    step = load(args.folder, model, optimizer)
    data = Noisy(args.samples)
    batches = -(-args.samples // args.batch_size)
    recorder.entered(
        generation=int(os.environ.get("ELASTICD_GENERATION", "1")),
        rank=rank,
        size=size,
        step=step,
        epoch=step // batches,
        digest=digest_of(model, optimizer),
    )
    replica = DistributedDataParallel(model)
    while not recorder.is_over(step) and (not args.steps or step < args.steps):
        step += 1
        epoch, batch = divmod(step - 1, batches)
        if step == args.poison_at_step:
            raise RuntimeError(f"step {step} is poisoned")
        order = torch.randperm(args.samples, generator=torch.Generator().manual_seed(epoch))
        whole = order[batch * args.batch_size : (batch + 1) * args.batch_size].tolist()
        share = whole[rank::size]
        recorder.obey(Point.BACKWARD, step)
        # A rank without samples takes part with one that counts nothing.
        rows = [data[index] for index in share or whole[:1]]
        x, y = torch.stack([row[1] for row in rows]), torch.stack([row[2] for row in rows])
        errors = torch.nn.functional.mse_loss(replica(x), y, reduction="none")
        loss = errors.sum() if share else errors.sum() * 0.0
        recorder.took(step=step, epoch=epoch, samples=share, loss=loss.item())
        time.sleep(args.step_sleep)
        optimizer.zero_grad()
        (loss * size / len(whole)).backward()  # type: ignore[no-untyped-call]
        recorder.obey(Point.OPTIMIZER, step)
        optimizer.step()
        recorder.obey(Point.COMMIT, step)
        if rank == 0:
            save(args.folder, model, optimizer, step)
        dist.barrier()
        recorder.applied(step=step, digest=digest_of(model, optimizer))
        recorder.obey(Point.COMMITTED, step)
    # The replica must be gone before its group: torch 2.13 may deadlock otherwise.
    del replica
    dist.destroy_process_group()


def save(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    if "ELASTICD_GENERATION" not in os.environ:
        return
    partial = folder / f"partial-{os.getpid()}"
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, partial)
    partial.rename(folder / CHECKPOINT)


def load(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load what rank 0 finds into all ranks; return the steps that are done."""
    found: list[dict[str, object] | None] = [None]
    path = folder / CHECKPOINT
    if dist.get_rank() == 0 and path.exists():
        found[0] = torch.load(path, weights_only=True)
    dist.broadcast_object_list(found, src=0)
    if found[0] is None:
        return 0
    model.load_state_dict(found[0]["model"])  # type: ignore[arg-type]
    optimizer.load_state_dict(found[0]["optimizer"])  # type: ignore[arg-type]
    return int(found[0]["step"])  # type: ignore[call-overload, no-any-return]


if __name__ == "__main__":
    sys.exit(main())  # type: ignore[func-returns-value]

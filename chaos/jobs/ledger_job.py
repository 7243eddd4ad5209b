"""The chaos job of in-process mode: DDP in fp64 that writes down every step it makes.

See call.py for its arguments. Runs until the file FOLDER/end names a step, or for --steps. Under
plain `python` it is the undisturbed run that others are compared with.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

import elasticd
from chaos.jobs.call import parse_args
from chaos.jobs.recorder import Ordered, Recorder, digest_of, now_s
from chaos.jobs.task import Noisy, make_model, make_optimizer
from chaos.plan.fault import Point

EPOCHS = 1_000_000


def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)
    model = make_model()
    state = elasticd.State(
        model=model,
        optimizer=make_optimizer(model),
        data=elasticd.Loader(Noisy(args.samples), batch_size=args.batch_size, seed=0),
    )

    run_recorded(
        state,
        args,
        replica_of=DistributedDataParallel,
        digest=lambda: digest_of(state.model, state.optimizer),
    )


def run_recorded(
    state: elasticd.State,
    args: argparse.Namespace,
    *,
    replica_of: Callable[[Any], torch.nn.Module],
    digest: Callable[[], str],
) -> None:
    """Train this state and write down each step: `replica_of` gives what the model is called by in
    a world, `digest` the hash of what this rank has now.
    """
    recorder = Recorder(args.folder, is_in_pod=args.in_pod)

    def train(state: elasticd.State, world: elasticd.World) -> None:
        recorder.entered(
            generation=world.generation,
            rank=world.rank,
            size=world.size,
            step=state.step,
            epoch=state.epoch,
            digest=digest(),
        )
        try:
            loop(state, recorder, args, replica_of(state.model), digest)
        except BaseException as exc:
            recorder.left(step=state.step, why=type(exc).__name__)
            raise
        recorder.left(step=state.step, why="")

    elasticd.run(train, state)


def loop(
    state: elasticd.State,
    recorder: Recorder,
    args: argparse.Namespace,
    replica: torch.nn.Module,
    digest: Callable[[], str],
) -> None:
    """Train until the last epoch, and record each step.

    Raises: Ordered: the scenario poisons a step.
    """
    for epoch in state.epochs(EPOCHS):
        for indices, x, y in state.data:
            step = state.step + 1
            if args.poison_at_step and step == args.poison_at_step:
                raise Ordered(f"step {step} is poisoned")
            errors = torch.nn.functional.mse_loss(replica(x), y, reduction="none")
            is_repeat = state.data.weight == 0.0
            recorder.took(
                step=step,
                epoch=epoch,
                samples=() if is_repeat else indices.tolist(),
                loss=0.0 if is_repeat else errors.sum().item(),
            )
            time.sleep(args.step_sleep)
            recorder.obey(Point.BACKWARD, step)
            state.optimizer.zero_grad()
            (errors.mean() * state.data.weight).backward()
            recorder.obey(Point.OPTIMIZER, step)
            state.optimizer.step()
            recorder.obey(Point.COMMIT, step)
            called_s, is_late = now_s(), True
            try:
                state.commit()
                is_late = False
            finally:
                # A change of world may leave `train` from within commit(), which then has applied.
                if state.step == step:
                    recorder.applied(step=step, digest=digest(), called_s=called_s, is_late=is_late)
            recorder.obey(Point.COMMITTED, step)
            if recorder.is_over(step) or step == args.steps:
                return


if __name__ == "__main__":
    main()

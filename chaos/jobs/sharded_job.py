"""The chaos job of a sharded state: FSDP2 in fp64 without replicas, under `elasticd.run`.

Called as ledger_job.py. Each rank has a part of the parameters that no other has, so a failure goes
back to the newest snapshot, and steps are done again. No digest is written down: the parts of two
ranks differ, and to put them together takes collectives that a change of world breaks off. That the
state is right shows in the loss of the next steps, which is compared with that of an undisturbed
run.
"""

import argparse
import time
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import elasticd
from chaos.jobs.call import parse_args
from chaos.jobs.recorder import Recorder, now_s
from chaos.jobs.task import Noisy, make_model, make_optimizer
from chaos.plan.fault import Point

EPOCHS = 1_000_000


def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)
    recorder = Recorder(args.folder)
    state: elasticd.State = elasticd.State(
        model=build,
        optimizer=lambda world: make_optimizer(state.model),
        data=elasticd.Loader(Noisy(args.samples), batch_size=args.batch_size, seed=0),
    )

    def train(state: elasticd.State, world: elasticd.World) -> None:
        recorder.entered(
            generation=world.generation,
            rank=world.rank,
            size=world.size,
            step=state.step,
            epoch=state.epoch,
            digest="",
        )
        try:
            loop(state, recorder, args)
        except BaseException as exc:
            recorder.left(step=state.step, why=type(exc).__name__)
            raise
        recorder.left(step=state.step, why="")

    elasticd.run(train, state)


def build(world: elasticd.World) -> Any:
    mesh = init_device_mesh(world.device.type, (world.size,))
    model = make_model()
    for layer in model.children():
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def loop(state: elasticd.State, recorder: Recorder, args: argparse.Namespace) -> None:
    for epoch in state.epochs(EPOCHS):
        for indices, x, y in state.data:
            step = state.step + 1
            errors = torch.nn.functional.mse_loss(state.model(x), y, reduction="none")
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
                    recorder.applied(step=step, digest="", called_s=called_s, is_late=is_late)
            recorder.obey(Point.COMMITTED, step)
            if recorder.is_over(step) or step == args.steps:
                return


if __name__ == "__main__":
    main()

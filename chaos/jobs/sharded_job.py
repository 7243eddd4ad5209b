"""The chaos job of a sharded state: FSDP2 in fp64 without replicas, under `elasticd.run`.

Called as ledger_job.py. Each rank has a part of the parameters that no other has, so a failure goes
back to the newest snapshot, and steps are done again. No digest is written down: the parts of two
ranks differ, and to put them together takes collectives that a change of world breaks off. That the
state is right shows in the loss of the next steps, which is compared with that of an undisturbed
run.
"""

from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import elasticd
from chaos.jobs.call import parse_args
from chaos.jobs.ledger_job import run_recorded
from chaos.jobs.task import Noisy, make_model, make_optimizer


def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)
    state: elasticd.State = elasticd.State(
        model=build,
        optimizer=lambda world: make_optimizer(state.model),
        data=elasticd.Loader(Noisy(args.samples), batch_size=args.batch_size, seed=0),
    )

    # No rank has a replica: what is sharded is called as it is.
    run_recorded(state, args, replica_of=lambda model: model, digest=str)


def build(world: elasticd.World) -> Any:
    mesh = init_device_mesh(world.device.type, (world.size,))
    model = make_model()
    for layer in model.children():
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


if __name__ == "__main__":
    main()

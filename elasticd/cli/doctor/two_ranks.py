"""One of two processes that form a process group and sum up a tensor.

This file is a script: the workers' interpreter, which need not have elasticd, runs it.

    python two_ranks.py RANK BACKEND ADDRESS PORT

The script prints how many seconds the group and its first sum took, on a line that begins with
`TOOK`: NCCL and other libraries may print to stdout as well, also as the process ends.
"""

import sys
import time
from datetime import timedelta

SIZE = 2
TOOK = "elasticd-took-s"
LIMIT = timedelta(seconds=30)


def main() -> None:
    rank, backend, address, port = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    import torch
    import torch.distributed as dist

    store = dist.TCPStore(  # type: ignore[attr-defined]
        address, port, SIZE, is_master=rank == 0, timeout=LIMIT
    )
    store.set(f"ready/{rank}", "")
    store.wait([f"ready/{each}" for each in range(SIZE)], LIMIT)  # Both imported torch.
    began_s = time.monotonic()
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, store=store, rank=rank, world_size=SIZE, timeout=LIMIT)
    total = torch.ones(1, device=device)
    dist.all_reduce(total)
    assert total.item() == SIZE
    took_s = time.monotonic() - began_s
    dist.destroy_process_group()
    print(f"\n{TOOK} {took_s}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

"""Uses CUDA in a worker that was forked from the warm pool."""

import torch

before = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
print(f"before {before}, sum {int(torch.arange(1000, device='cuda').sum())}")

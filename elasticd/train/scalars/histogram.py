"""How the values of a tensor are distributed, computed where the tensor is, without waiting.

Everything stays on the device, in one vector that is fetched with the step's numbers. Values that
are not finite are counted apart: one NaN among a million weights is news, and no reason to show
nothing of the others.
"""

from collections.abc import Mapping

import torch

from elasticd.errors import CallError
from elasticd.tensorboard.histogram import BINS, SUMS

__all__ = ["check_histograms", "counted"]

PART_ELEMENTS = 1 << 24
"""How many elements are counted at a time: this takes some forty bytes of memory for each."""


def check_histograms(hist: object) -> None:
    """Refuse values of which no histogram can be made.

    Raises: CallError: the message says what to give instead.
    """
    if not isinstance(hist, Mapping):
        raise CallError(
            f"commit(hist=...) got a {type(hist).__name__}: give a dict of tensors, as in "
            'hist={"w": model.weight}.'
        )
    for name, tensor in hist.items():
        why = _refusal(name, tensor)
        if why:
            raise CallError(f"commit(hist={{{name!r}: ...}}) {why}")


def _refusal(name: object, tensor: object) -> str:
    if not isinstance(name, str):
        return "has a name that is no text: give a str."
    if not isinstance(tensor, torch.Tensor):
        return f"got a {type(tensor).__name__}: give a tensor."
    if hasattr(tensor, "to_local"):
        return "got a DTensor: give the part of this rank, its to_local()."
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return "got a sparse or quantized tensor: give a dense one, its to_dense() or dequantize()."
    if tensor.is_complex():
        return "got complex numbers: give their abs()."
    if tensor.is_meta:
        return "got a tensor without values, on the device meta."
    return ""


def counted(tensor: torch.Tensor) -> torch.Tensor:
    """Return the numbers of `elasticd.tensorboard.histogram`, on the tensor's device."""
    with torch.no_grad():
        values = tensor.detach().reshape(-1)
        is_mps = values.device.type == "mps"
        is_wide = values.dtype in (torch.float64, torch.int64, torch.uint64) and not is_mps
        own, sums = (
            torch.float64 if is_wide else torch.float32,
            torch.float32 if is_mps else torch.float64,
        )
        if values.numel() == 0:
            return torch.zeros(SUMS + BINS, dtype=sums, device=values.device)
        parts = torch.split(values, PART_ELEMENTS)
        heads = torch.stack([_head(part.to(own), sums) for part in parts])
        least, greatest = heads[:, 2].amin(), heads[:, 3].amax()
        # Halves, since the distance between the ends of a type is beyond its range.
        width = (greatest / 2 - least / 2).clamp(min=torch.finfo(own).tiny)
        counts = torch.zeros(BINS, dtype=sums, device=values.device)
        for part in parts:
            kept = part.to(own)
            is_good = torch.isfinite(kept)
            place = (kept / 2 - (least / 2).to(own)) / width.to(own) * BINS
            bins = torch.where(is_good, place, 0.0).clamp(0, BINS - 1).to(torch.int64)
            counts.scatter_add_(0, bins, is_good.to(sums))
        added = heads.sum(dim=0)
        return torch.cat((added[:2], least[None], greatest[None], added[4:], counts))


def _head(values: torch.Tensor, sums: torch.dtype) -> torch.Tensor:
    """Return the six sums of a part of the values."""
    is_good = torch.isfinite(values)
    count = is_good.sum(dtype=sums)
    least = torch.where(is_good, values, torch.inf).amin()
    greatest = torch.where(is_good, values, -torch.inf).amax()
    good = torch.where(is_good, values, 0.0).to(sums)
    total, squares = good.sum(), torch.dot(good, good)
    odd = values.numel() - count
    return torch.stack((count, odd, least.to(sums), greatest.to(sums), total, squares))

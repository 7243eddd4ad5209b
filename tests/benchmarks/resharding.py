"""A checkpoint of N ranks read by M: what it costs that shares are cut otherwise; for `restore`."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import torch

from elasticd.checkpoint.commit.fetch import extents
from elasticd.checkpoint.format.manifest import Manifest, Piece
from elasticd.checkpoint.format.piece_rows import all_rows
from elasticd.keeper.client import Client
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.wire import message as ms
from elasticd.tensors.tensor_spec import views
from elasticd.train.restore.stored_checkpoint import divided
from elasticd.train.state.state import core_of
from tests.benchmarks.checkpoint_site import Job, Keeper, Trained, over
from tests.benchmarks.report import Figure, Series

__all__ = ["reshard"]

STATE_MIB = 1024
PAIRS = ((4, 3), (2, 5))
"""Ranks that saved, ranks that restore."""
WARM_UP = 2


def reshard(folder: Path, trials: int) -> tuple[list[Series], list[Figure]]:
    """Save by N; restore by N and by M in turn."""
    trained = Trained(STATE_MIB)
    places = [each.clone() for each in core_of(trained.state).tree().tensors]
    series, figures = [], []
    for saved, wanted in PAIRS:
        url = f"file://{folder / f'saved-by-{saved}'}"
        keeper = Keeper(url, folder / f"reshard-{saved}.log")
        _save(keeper, trained, saved)
        same: list[float] = []
        other: list[float] = []
        try:
            for number in range(WARM_UP + trials):
                for count, found in ((saved, same), (wanted, other)):
                    took_s = _restore(keeper.name, count, places)
                    if number >= WARM_UP:
                        found.append(took_s)
        finally:
            keeper.close()
        for tensor, before in zip(core_of(trained.state).tree().tensors, places, strict=True):
            assert torch.equal(tensor, before), "what came back is not what was saved"
        ratio = over(other, same, f"{saved} to {wanted} / {saved} to {saved}")
        series += [
            Series(name=f"saved by {saved}, restored by {saved}", values=tuple(same)),
            Series(name=f"saved by {saved}, restored by {wanted}", values=tuple(other)),
            ratio,
        ]
        figures += [
            Figure(name=f"saved by {saved}: restored by {wanted} / by {saved}, p50",
                   value=ratio.at(0.5), unit="x", target=1.3),
            Figure(name=f"saved by {saved}: restored by {wanted} / by {saved}, p99",
                   value=ratio.at(0.99), unit="x"),
        ]  # fmt: skip
    return series, figures


def _save(keeper: Keeper, trained: Trained, ranks: int) -> None:
    jobs = [Job(keeper, trained, "blocking", rank=rank, ranks=ranks) for rank in range(ranks)]
    core_of(trained.state).step = 1
    for job in jobs:
        job.step = 1
        if not job.saving.take(1):
            raise RuntimeError("No snapshot was taken.")
    for job in jobs:
        job.wait()
        job.close()


def _restore(name: str, ranks: int, places: list[torch.Tensor]) -> float:
    """Seconds until each of so many ranks has copied its share of the bytes to its place."""
    clients = [Client(name) for _ in range(ranks)]
    begin = Barrier(ranks + 1)

    def one(rank: int) -> None:
        begin.wait()
        client = clients[rank]
        number = client.ask(ms.Find(), ms.Found).number
        _, text = client.ask_memory(ms.Read(number=number), ms.Shared)
        assert text is not None
        manifest = Manifest.from_json(bytes(text.view))
        first, count = divided(manifest, ranks)[rank]
        pieces = manifest.pieces[first : first + count]
        rows = tuple(all_rows(first + index, piece) for index, piece in enumerate(pieces))
        _, memory = client.ask_memory(ms.Fetch(number=number, pieces=rows), ms.Shared)
        assert memory is not None
        _copy(manifest, pieces, memory, places)

    with ThreadPoolExecutor(ranks) as pool:
        tasks = [pool.submit(one, rank) for rank in range(ranks)]
        began_s = time.perf_counter()
        begin.wait()
        for task in tasks:
            task.result()
        took_s = time.perf_counter() - began_s
    for client in clients:
        client.close()
    return took_s


def _copy(
    manifest: Manifest,
    pieces: tuple[Piece, ...],
    memory: SharedMemory,
    places: list[torch.Tensor],
) -> None:
    _, starts, _ = extents(manifest, pieces)
    for piece, part in zip(
        pieces, views(memory.view, manifest.header.tensors, pieces, starts), strict=True
    ):
        place = places[piece.tensor]
        for dimension, (offset, size) in enumerate(zip(piece.offsets, piece.shape, strict=True)):
            place = place.narrow(dimension, offset, size)
        place.copy_(part)

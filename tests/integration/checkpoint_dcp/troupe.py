"""Ranks that stay for a whole module and play one scene after the other, each in a fresh group."""

import hashlib
import io
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from tests.fixtures.ranks import Cast

__all__ = ["Troupe", "digests", "put_back", "sharded", "state_of", "told", "trained"]

Scene = Callable[..., Any]


class Troupe:
    """Some processes; use it in a `with` through its Cast.

    Where a scene fails, others begin anew: what one rank left undone would meet the next test.
    """

    def __init__(self, cast: Cast, size: int) -> None:
        self._cast = cast
        self._actors = [cast.start(_perform) for _ in range(size)]

    def play(self, scene: Scene, *args: Any, size: int) -> list[Any]:
        """Have `scene(rank, *args)` played by so many ranks; return what each returned."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                playing = self._actors[:size]
                for rank, actor in enumerate(playing):
                    actor.tell((scene, args, rank, size, str(Path(folder, "store"))))
                heard = [actor.hear() for actor in playing]
            failed = [text for text, _ in heard if text]
            assert not failed, "\n".join(failed)
        except BaseException:
            for actor in self._actors:
                actor.end()
            self._actors = [self._cast.start(_perform) for _ in self._actors]
            raise
        return [value for _, value in heard]


def _perform(line: Connection) -> None:
    # DCP warns of what it is asked to do here.
    warnings.simplefilter("ignore")
    while True:
        scene, args, rank, size, path = line.recv()
        store = dist.FileStore(path, size)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
        # A rank whose scene ends at once would close connections that others are still making.
        store.set(f"formed/{rank}", "")
        store.wait([f"formed/{each}" for each in range(size)])
        try:
            line.send(("", scene(rank, *args)))
        except BaseException:
            line.send((traceback.format_exc(), None))
        finally:
            dist.destroy_process_group()


def told(call: Callable[[], Any]) -> tuple[str, str]:
    """Call; return what it wrote to stderr, and the text of what it raised."""
    stream = io.StringIO()
    with redirect_stderr(stream):
        try:
            call()
        except BaseException as exc:
            return stream.getvalue(), str(exc)
    return stream.getvalue(), ""


def digests(state: Mapping[str, Any]) -> dict[str, str]:
    """Hash each tensor of nested state, of DTensors the whole; other leaves are their own text."""
    return dict(_leaves("", state))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{path}.{key}", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(f"{path}[{index}]", item)
    elif isinstance(value, torch.Tensor):
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        raw = whole.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        yield path, f"{whole.dtype} {list(whole.shape)} {hashlib.sha256(raw).hexdigest()}"
    else:
        yield path, repr(value)


def sharded(seed: int, mesh: DeviceMesh | None) -> tuple[Any, torch.optim.Optimizer]:
    """Return a model whose sizes no world divides evenly, by FSDP2 if there is a mesh."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(7, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3), torch.nn.Linear(3, 1)
    )
    if mesh is not None:
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01 * seed)


def trained(seed: int, mesh: DeviceMesh | None, steps: int = 2) -> tuple[Any, Any]:
    """Train a little, so that there is optimizer state to save."""
    model, optimizer = sharded(seed, mesh)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 7)).sum().backward()
        optimizer.step()
    return model, optimizer


def state_of(model: Any, optimizer: Any) -> dict[str, Any]:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def put_back(model: Any, optimizer: Any, state: dict[str, Any]) -> None:
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )

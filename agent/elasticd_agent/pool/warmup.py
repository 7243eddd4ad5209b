"""The imports on which a worker would spend its first seconds, done once and without threads.

A fork copies only the thread that calls it, so a lock that another thread holds stays held for
ever. Therefore the libraries that start threads while they load (OpenBLAS, OpenMP, MKL) are told to
use one thread, and the threads are counted afterwards. The worker gets its own number of threads by
a call, after the fork.
"""

import gc
import importlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from elasticd.errors import EnvironmentProblem

__all__ = ["ONE_THREAD", "WarmupResult", "one_thread", "warm_up"]

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_FIRST_STEP = (
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.optim",
    "torch.utils.data",
    "torch.distributed.elastic.multiprocessing.errors",
    # The first optimizer or DistributedDataParallel of a process imports it: 1.5 s.
    "torch._dynamo",
)
"""The modules that a script has loaded by the end of its first DDP step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupResult:
    import_s: float
    can_fork: bool


def warm_up(
    preload: tuple[str, ...] = (), folder: str = "", *, needs_torch: bool = True
) -> WarmupResult:
    """Import torch, and the modules named from this folder or the path, in this process.

    Raises:
        EnvironmentProblem: torch is missing or a module cannot be imported.
    """
    started_s = time.monotonic()
    with one_thread():
        if needs_torch:
            _import_first_step()
        sys.path.insert(0, folder)
        try:
            for name in preload:
                _import_preload(name)
        finally:
            if folder in sys.path:
                sys.path.remove(folder)
    # Collect once, then keep the collector from touching (and so copying) these pages in workers.
    gc.collect()
    gc.freeze()
    return WarmupResult(import_s=time.monotonic() - started_s, can_fork=_is_forkable())


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep libraries that are imported meanwhile from starting threads."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _import_first_step() -> None:
    """Import the modules of `_FIRST_STEP`, with the garbage collector off, which takes a tenth of
    the time.

    Objects that modules create while they load stay alive, so the collector would search them in
    vain.
    """
    gc.disable()
    try:
        for name in _FIRST_STEP:
            _import_torch(name)
        _calm_torch()
    finally:
        gc.enable()


def _calm_torch() -> None:
    """Set torch up once, for the store host and all workers, which are forked from this process."""
    try:
        from elasticd.net.reverse_dns import skip_reverse_lookups

        skip_reverse_lookups()
    except Exception:  # noqa: S110 - another torch than the one that needs it
        pass


def _import_torch(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as exc:
        if name != "torch":
            return  # An older or smaller build of torch: slower, not broken.
        if isinstance(exc, ModuleNotFoundError) and exc.name == "torch":
            raise EnvironmentProblem(
                f"PyTorch is not installed for {sys.executable}: install it there (pip install "
                "torch), or name an interpreter that has it with --python."
            ) from exc
        raise EnvironmentProblem(
            f"PyTorch cannot be imported by {sys.executable}: {_one_line(exc)}. "
            'Try it there with: python -c "import torch".'
        ) from exc


def _import_preload(name: str) -> None:
    try:
        importlib.import_module(name)
    except BaseException as exc:  # sys.exit() in a user's module must not end us without a word.
        raise EnvironmentProblem(
            f"The module {name!r} named by --preload could not be imported: {_one_line(exc)}. "
            "Correct it, or leave it out of --preload."
        ) from exc


def _one_line(exc: BaseException) -> str:
    return " ".join(f"{type(exc).__name__}: {exc}".split())[:500]


def _is_forkable() -> bool:
    """Return whether this process has one thread and no CUDA context (which no fork survives)."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    has_context = cuda is not None and bool(cuda.is_initialized())
    return len(os.listdir("/proc/self/task")) == 1 and not has_context

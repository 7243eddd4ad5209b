"""In the worker: name the installed modules that the script has loaded, once it trains.

Elasticd may not delay a step, and a script that started no thread must not find one. So a callback
of the garbage collector looks for the modules. The callback runs in any process that makes objects,
costs some tenths of a microsecond, and removes itself after the report. Until then young objects
are collected as often as Python 3.12 does it.

Rejected: a thread (a fork beside it is unsafe, and a script may count its threads), a timer's
signal (it interrupts system calls), a hook of torch's optimizers (torch.compile traces it), a
finder on `sys.meta_path` (it cannot know when the script trains).
"""

import gc
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from types import ModuleType

from elasticd.channel.pool import ModulesLoaded

__all__ = ["ModuleReport", "installed_modules", "installed_roots"]

GROUP_S = 2.0
"""A script that has had a process group for this long has built its model and taken steps."""
ALONE_S = 30.0
"""A script without a process group has done by then what it does at its start."""
_LOOK_EVERY_S = 0.25
_YOUNG_OBJECTS = 700
"""After how many new objects garbage is collected until Python 3.12. Later ones wait for 2,000,
which the loop of a small model may never have at a time."""
_ROOT_NAMES = ("site-packages", "dist-packages")


class ModuleReport:
    """Report once, through `send`, what the script has loaded."""

    def __init__(
        self,
        worker: str,
        send: Callable[[ModulesLoaded], None],
        *,
        script_package: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`script_package` is the package of a script started with `-m`: it is the script's own."""
        self._worker, self._send, self._clock = worker, send, clock
        self._script_package = script_package
        self._before = frozenset(sys.modules)
        self._environment = dict(os.environ)
        self._pid = os.getpid()
        self._began_s = clock()
        self._group_s: float | None = None
        self._next_s = 0.0
        self._threshold: tuple[int, int, int] | None = None
        """What the script would see, as long as another one holds."""

    def watch(self) -> None:
        """Look for the modules now and then, until the report is sent."""
        gc.callbacks.append(self._on_gc)
        before = gc.get_threshold()
        if before[0] > _YOUNG_OBJECTS:
            self._threshold = before
            gc.set_threshold(_YOUNG_OBJECTS, *before[1:])

    def _on_gc(self, phase: str, _: Mapping[str, object]) -> None:
        if phase != "stop" or (now_s := self._clock()) < self._next_s:
            return
        self._next_s = now_s + _LOOK_EVERY_S
        if os.getpid() != self._pid:
            self._stop()  # A process that the script forked is no worker of ours.
        elif self.is_due(now_s):
            self._stop()
            self._send(self.collect())

    def _stop(self) -> None:
        before, self._threshold = self._threshold, None
        if before is not None and gc.get_threshold() == (_YOUNG_OBJECTS, *before[1:]):
            gc.set_threshold(*before)
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    def is_due(self, now_s: float) -> bool:
        """Return whether the script has trained for a while."""
        if self._group_s is None and _has_group():
            self._group_s = now_s
        if self._group_s is not None:
            return now_s - self._group_s >= GROUP_S
        return now_s - self._began_s >= ALONE_S

    def collect(self) -> ModulesLoaded:
        """Return the modules that were loaded, and the variables that changed, since `__init__`."""
        found = installed_modules(sys.modules, self._before, installed_roots(sys.path))
        names = [n for n in found if n.partition(".")[0] != self._script_package]
        now = dict(os.environ)
        then = self._environment
        keys = sorted(key for key in {*now, *then} if now.get(key) != then.get(key))
        return ModulesLoaded(
            worker=self._worker,
            modules=tuple(names),
            variables={key: now.get(key, "") for key in keys},
        )


def installed_roots(path: Iterable[str]) -> tuple[str, ...]:
    """Folders of the search path into which packages are installed, each with a slash at its end.

    A package in an editable install lies elsewhere, and counts as the script's own.
    """
    roots = (os.path.abspath(entry) for entry in path if entry)
    return tuple(root + os.sep for root in roots if os.path.basename(root) in _ROOT_NAMES)


def installed_modules(
    modules: Mapping[str, ModuleType], before: Collection[str], roots: tuple[str, ...]
) -> list[str]:
    """Return the modules that were loaded since `before` from a file below one of the roots."""
    found = []
    for name, module in list(modules.items()):
        if name in before or name.startswith("__"):
            continue
        # Not by getattr: a module may compute what it is asked for, and import more for that.
        space = getattr(module, "__dict__", None)
        spec = space.get("__spec__") if isinstance(space, dict) else None
        origin = getattr(spec, "origin", None)
        is_named_so = getattr(spec, "name", None) == name
        if is_named_so and isinstance(origin, str) and origin.startswith(roots or ("\0",)):
            found.append(name)
    return found


def _has_group() -> bool:
    distributed = sys.modules.get("torch.distributed")
    is_initialized = getattr(distributed, "is_initialized", None)
    return bool(is_initialized is not None and is_initialized())

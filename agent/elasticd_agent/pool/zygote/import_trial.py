"""Imports the learned packages one by one, and checks after each that a fork is still safe.

The check comes after each package, so the one at fault is known at once. Only the trial of a fork
comes once, at the end; if the fork fails, a second, careful trial forks after each package. A
package that imports the one at fault is found to be at fault itself. Nothing is kept from being
imported, so each package takes the same way as in a worker.
"""

import gc
import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticd_agent.pool.warmup import ONE_THREAD, one_thread
from elasticd_agent.pool.zygote.environ_reads import recorded
from elasticd_agent.pool.zygote.fork_safety import answers, facts, what_changed
from elasticd_agent.pool.zygote.learned_set import LearnedSet
from elasticd_agent.pool.zygote.rank_at_import import renew_ranks

__all__ = ["Loaded", "Unsound", "import_packages"]


class Unsound(Exception):
    """A package must be left out, and this process must not go on."""

    def __init__(self, package: str, why: str) -> None:
        super().__init__(f"{package}: {why}")
        self.package, self.why = package, why


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The result of importing a script's modules in a child on trial."""

    modules: int
    import_s: float
    reads: frozenset[str]
    """The variables whose values the packages keep from now on."""
    environment: Mapping[str, str | None]
    """What the imports set in the environment, which every worker must have; None where they
    removed a variable."""


def import_packages(
    learned: LearnedSet,
    *,
    differing: frozenset[str],
    set_by_script: Mapping[str, str] | None,
    is_careful: bool = False,
    began: Callable[[str], None] = lambda _: None,
    priority: int = 0,
) -> Loaded:
    """Import all packages of the set in this process.

    `differing` are the variables that differ between workers. `set_by_script` are those that the
    script itself sets, with values; None if only their names are known, from an earlier run.

    Raises: Unsound: a package did what makes a fork unsafe, or read a variable that differs.
    """
    began_s, count = time.monotonic(), 0
    before_modules = len(sys.modules)
    environment = dict(os.environ)
    gc.disable()
    try:
        with one_thread(), recorded() as reads:
            own = dict(os.environ)
            for package, names in learned.packages().items():
                began(package)
                before = facts()
                for name in names:
                    count += _import(name)
                if why := what_changed(before, facts()):
                    raise Unsound(package, why)
                script = _set_by_script(learned, set_by_script, own)
                wrong = sorted(reads.names & (differing | script) - set(ONE_THREAD))
                if wrong:
                    raise Unsound(package, f"it reads {', '.join(wrong)} as it is imported")
                if not _can_renew():
                    raise Unsound(package, "it asks for its rank as it is imported")
                if is_careful and not answers(priority):
                    raise Unsound(package, "a process forked after it does not answer")
            changes = _changes(own)
    finally:
        gc.enable()
        os.environ.clear()
        os.environ.update(environment)
    gc.collect()
    gc.freeze()
    return Loaded(
        modules=len(sys.modules) - before_modules,
        import_s=time.monotonic() - began_s,
        reads=frozenset(reads.names) - set(ONE_THREAD),
        environment=changes,
    )


def _can_renew() -> bool:
    try:
        renew_ranks()
    except Exception:  # A version of the library that is built in another way.
        return False
    return True


def _import(name: str) -> bool:
    """Import one module. Leave a module that cannot be imported here to the worker, which may
    import it.
    """
    if name in sys.modules:
        return True
    try:
        importlib.import_module(name)
    except BaseException:
        return False
    return True


def _changes(own: Mapping[str, str]) -> dict[str, str | None]:
    now = _plain(os.environ)
    keys = {key for key in {*now, *own} if now.get(key) != own.get(key)} - set(ONE_THREAD)
    return {key: now.get(key) for key in sorted(keys)}


def _set_by_script(
    learned: LearnedSet, values: Mapping[str, str] | None, own: Mapping[str, str]
) -> set[str]:
    """Return the variables that the script sets itself, without those that a package sets."""
    now = _plain(os.environ)
    by_packages = {key for key in learned.variables if now.get(key) != own.get(key)}
    if values is not None:
        by_packages = {key for key in by_packages if now.get(key, "") == values.get(key)}
    return set(learned.variables) - by_packages


def _plain(environ: Any) -> dict[str, str]:
    """Copy the environment without being recorded as a reader of it."""
    return {environ.decodekey(k): environ.decodevalue(v) for k, v in environ._data.items()}

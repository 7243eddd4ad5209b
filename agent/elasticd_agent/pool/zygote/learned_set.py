"""What a node knows of the packages that a script loads, from one run of it to the next.

It stands beside the runs, one small file for each (interpreter, installed packages, script). The
script's content counts, so an edited script is learned anew. If a file cannot be read or written,
only this knowledge is lost.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from elasticd.records.job import EntryKind

__all__ = ["LearnedSet", "Script", "load", "package_of", "record_path", "save", "shadowed"]

_VERSION = 1
_NAMES_LIMIT = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The script that the job runs, as it was submitted."""

    entry: str
    kind: EntryKind
    folder: str
    """The folder in which it is started."""

    @property
    def path(self) -> str:
        return os.path.join(self.folder, self.entry)

    @property
    def first_folder(self) -> str:
        """Return the folder that comes first on the search path of its process."""
        if self.kind is EntryKind.MODULE:
            return self.folder
        return os.path.dirname(os.path.realpath(self.path))


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedSet:
    modules: tuple[str, ...] = ()
    """The modules, in the order in which their imports began in a worker."""
    variables: tuple[str, ...] = ()
    """The names of the variables that the script sets itself."""
    differing: tuple[str, ...] = ()
    """The names of the variables that differ between some worker and the pool."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The packages that must not be imported ahead, and why."""

    def with_more(
        self, modules: Iterable[str], variables: Iterable[str], differing: Iterable[str]
    ) -> "LearnedSet":
        """Return the set with what another worker has named."""
        return replace(
            self,
            modules=tuple(dict.fromkeys([*self.modules, *modules]))[:_NAMES_LIMIT],
            variables=tuple(sorted({*self.variables, *variables})),
            differing=tuple(sorted({*self.differing, *differing})),
        )

    def without(self, package: str, why: str) -> "LearnedSet":
        """Return the set without this package, which is left out from now on."""
        return replace(self, left_out={**self.left_out, package: why})

    def packages(self) -> dict[str, list[str]]:
        """Return the modules by package, without those left out; the first loaded comes first."""
        found: dict[str, list[str]] = {}
        for name in self.modules:
            if package_of(name) not in self.left_out:
                found.setdefault(package_of(name), []).append(name)
        return found


def package_of(module: str) -> str:
    return module.partition(".")[0]


def shadowed(packages: Iterable[str], folder: str) -> set[str]:
    """Return the packages that a script in this folder would import from there, and not from where
    they are installed.
    """
    with suppress(OSError):
        return {name.partition(".")[0] for name in os.listdir(folder)} & set(packages)
    return set()


def record_path(folder: str, script: Script) -> Path:
    """Return the path of the record.

    Its name is a digest of all that must be equal for the record to be valid.
    """
    digest = hashlib.sha256()
    for part in (sys.executable, sys.version, script.path, script.kind, *_installed()):
        digest.update(part.encode(errors="surrogateescape") + b"\0")
    with suppress(OSError), open(script.path, "rb") as file:
        digest.update(file.read())
    return Path(folder, f"{digest.hexdigest()[:32]}.json")


def load(path: Path) -> LearnedSet:
    """Read the record; a missing or unfit one counts as if nothing had been learned."""
    try:
        plain = json.loads(path.read_bytes())
        if plain["version"] != _VERSION:
            return LearnedSet()
        return LearnedSet(
            modules=tuple(str(name) for name in plain["modules"]),
            variables=tuple(str(name) for name in plain["variables"]),
            differing=tuple(str(name) for name in plain["differing"]),
            left_out={str(name): str(why) for name, why in plain["left_out"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return LearnedSet()


def save(path: Path, learned: LearnedSet) -> None:
    """Write the record whole or not at all."""
    plain = {
        "version": _VERSION,
        "modules": learned.modules,
        "variables": learned.variables,
        "differing": learned.differing,
        "left_out": dict(learned.left_out),
    }
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(plain))
        draft.rename(path)


def _installed() -> list[str]:
    """Return what is installed, with versions, from the metadata folders that pip leaves."""
    names: list[str] = []
    for entry in sys.path:
        with suppress(OSError):
            names += [name for name in os.listdir(entry or ".") if name.endswith("-info")]
    return sorted(names)

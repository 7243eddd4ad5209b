"""The parts of a bundle: files, and a list of those that could not be read."""

from dataclasses import dataclass, field

__all__ = ["MissingFile", "BundledFile", "Parts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledFile:
    """One file of a bundle, without secrets."""

    path: str
    """The path below the bundle's own folder."""
    data: bytes
    size: int = 0
    """The full size of the file in bytes, if the bundle has only its end; 0 if the bundle has all
    of it."""
    node: str = ""
    """The node that sent the file; empty if the file was made here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFile:
    """A file or fact that the bundle does not have, and the reason."""

    what: str
    why: str

    @property
    def sentence(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(slots=True, kw_only=True)
class Parts:
    """The files that were found, the most useful first, and the missing ones."""

    found: list[BundledFile] = field(default_factory=list)
    missing: list[MissingFile] = field(default_factory=list)

    def add(self, path: str, data: bytes | str, *, size: int = 0, node: str = "") -> None:
        text = data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data
        whole = size if size > len(text) else 0
        self.found.append(BundledFile(path=path, data=text, size=whole, node=node))

    def lack(self, what: str, why: str) -> None:
        self.missing.append(MissingFile(what=what, why=why.rstrip(".")))

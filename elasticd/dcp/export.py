"""Writes a checkpoint for readers without elasticd: what stock torch or safetensors read.

It is written into a folder beside the wanted one, which gets its name when it is complete.
"""

import json
import os
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from elasticd.checkpoint.commit.committer import read_manifest
from elasticd.checkpoint.format.entry import LogEntry
from elasticd.checkpoint.format.manifest import Header
from elasticd.checkpoint.format.skeleton import plain
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.dcp.whole_checkpoint import load, load_tensors
from elasticd.errors import CallError, EnvironmentProblem, NotSupported

__all__ = ["FORMATS", "Format", "check_target", "export"]

TORCH_FILE = "checkpoint.pt"
TENSORS_FILE = "model.safetensors"
STATE_FILE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    write: Callable[[Bucket, LogEntry, Path], None]
    file: str
    """The object to load; empty for the folder."""
    how: str
    """How it is loaded; {path} stands for it."""

    def hint(self, folder: Path) -> str:
        return self.how.format(path=str(folder / self.file))


def export(bucket: Bucket, entry: LogEntry, format: str, target: Path) -> None:
    """Write a checkpoint into a new folder; what it needs to be loaded stands in FORMATS.

    Raises:
        CallError, EnvironmentProblem: the folder is not empty or cannot be written, or a package
            is missing.
        Damaged: the checkpoint is not as it was written.
    """
    check_target(target)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        beside.mkdir(parents=True)
        FORMATS[format].write(bucket, entry, beside)
        for path in (*beside.iterdir(), beside):
            _sync(path)
        os.replace(beside, target)
        _sync(target.parent)
    except OSError as exc:
        raise EnvironmentProblem(
            f"{target} cannot be written ({exc.strerror or exc}): free some space, or give another "
            "folder."
        ) from exc
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def check_target(target: Path) -> None:
    """Raise CallError unless the folder is new or empty."""
    try:
        is_free = not target.exists() or (target.is_dir() and not any(target.iterdir()))
    except OSError as exc:
        raise CallError(f"--to {target} cannot be listed ({exc.strerror}).") from exc
    if not is_free:
        raise CallError(f"--to {target} is there already: give a folder that is new or empty.")


def _write_torch(bucket: Bucket, entry: LogEntry, folder: Path) -> None:
    _, state = load(bucket, entry)
    with _translated(RuntimeError):
        # The format that was asked for. It is read with weights_only: no object stands in it.
        torch.save(state, folder / TORCH_FILE)  # noqa: TID251


def _write_dcp(bucket: Bucket, entry: LogEntry, folder: Path) -> None:
    # It costs a third of this command's start, which the other formats need not wait for.
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_saver import save

    _, state = load(bucket, entry)
    if not isinstance(state, dict):
        state = {"state": state}
    with warnings.catch_warnings(), _translated(RuntimeError, CheckpointException):
        warnings.simplefilter("ignore")  # That there is only one process: as wanted.
        save(state, checkpoint_id=folder, no_dist=True)


def _write_safetensors(bucket: Bucket, entry: LogEntry, folder: Path) -> None:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import save_file
    except ImportError as exc:
        raise EnvironmentProblem(
            "--format safetensors needs the package safetensors, which is not installed: "
            "pip install safetensors."
        ) from exc
    manifest = read_manifest(bucket, entry)
    names = _unique([each.name for each in manifest.header.tensors])
    tensors = dict(zip(names, load_tensors(bucket, manifest), strict=True))
    try:
        save_file(tensors, folder / TENSORS_FILE, metadata={"format": "pt"})
    except (SafetensorError, ValueError, KeyError) as exc:
        if "I/O error" in str(exc):
            raise OSError(str(exc)) from exc
        raise NotSupported(
            f"safetensors cannot hold this state ({exc}): take another --format."
        ) from exc
    text = json.dumps(_described(manifest.header, names), indent=1)
    (folder / STATE_FILE).write_text(text)
    # safetensors writes for the owner only, whatever the umask.
    (folder / TENSORS_FILE).chmod((folder / STATE_FILE).stat().st_mode)


@contextmanager
def _translated(*raised: type[BaseException]) -> Iterator[None]:
    """Translate what torch makes of a full disk: its writers raise anything but OSError."""
    try:
        yield
    except raised as exc:
        raise OSError("torch could not write all of it") from exc


def _sync(path: Path) -> None:
    line = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(line)
    finally:
        os.close(line)


def _unique(names: list[str]) -> list[str]:
    """Tell apart tensors of one path: {"a.b": x, "a": {"b": y}} has two."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}~{seen[name]}")
    return found


def _described(header: Header, names: list[str]) -> dict[str, Any]:
    snapshot = header.snapshot
    return {
        "job": header.job,
        "run": snapshot.run,
        "generation": snapshot.generation,
        "step": snapshot.step,
        "epoch": header.epoch,
        "world_size": header.world_size,
        "state": plain(header.skeleton, names),
    }


FORMATS: Mapping[str, Format] = {
    "dcp": Format(
        write=_write_dcp,
        file="",
        how="torch.distributed.checkpoint.load(state_dict, checkpoint_id={path!r})",
    ),
    "torch": Format(
        write=_write_torch, file=TORCH_FILE, how="torch.load({path!r}, weights_only=True)"
    ),
    "safetensors": Format(
        write=_write_safetensors,
        file=TENSORS_FILE,
        how=f"safetensors.torch.load_file({{path!r}}), and {STATE_FILE} for the plain values",
    ),
}

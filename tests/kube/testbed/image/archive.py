"""Container images without a registry and without a builder: layers are tar files, packed here.

An archive is an OCI layout in a tar. A layer whose contents a node has already may be left out of
it: it is only named. So the gigabyte of Python and torch is packed and unpacked once in a while,
and what changes with each edit of the project is a layer of a few megabytes.
"""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "PAUSE_IMAGE",
    "Image",
    "Layer",
    "Member",
    "pack_layer",
    "pause_program",
    "write_archive",
]

PAUSE_IMAGE = "localhost/pause:testbed"

Member = tuple[tarfile.TarInfo, Path | bytes | None]

_SOURCE = Path(__file__).parent / "pause.c"
_OCI = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer: its digest and size in bytes, and the tar file, None if every node has it."""

    digest: str
    size: int
    tar: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Layers under one or more names, and what runs when nobody says anything else."""

    names: Sequence[str]
    layers: Sequence[Layer]
    entrypoint: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def pause_program(folder: Path) -> Path:
    """Return the compiled pause program; it is compiled if `folder` does not have it."""
    key = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]
    path = folder / f"pause-{key}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        subprocess.run(
            ["gcc", "-static", "-Os", "-s", "-o", str(partial), str(_SOURCE)], check=True
        )
        partial.rename(path)
    return path


def pack_layer(path: Path, members: Iterable[Member]) -> Layer:
    """Write a layer; a member's contents are bytes or those of a file."""
    with tarfile.open(path, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, source in members:
            if isinstance(source, Path):
                with source.open("rb") as contents:
                    tar.addfile(member, contents)
            else:
                tar.addfile(member, io.BytesIO(source) if source else None)
    with path.open("rb") as raw:
        digest = hashlib.file_digest(raw, "sha256").hexdigest()
    return Layer(digest=f"sha256:{digest}", size=path.stat().st_size, tar=path)


def write_archive(path: Path, images: Iterable[Image]) -> None:
    """Write images as a tar that `ctr images import` takes."""
    written: set[str] = set()
    manifests: list[dict[str, object]] = []
    with tarfile.open(path, mode="w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        for image in images:
            for layer in image.layers:
                if layer.tar is not None and layer.digest not in written:
                    written.add(layer.digest)
                    tar.add(layer.tar, arcname=_blob(layer.digest))
            config = _add_blob(tar, _config(image), written)
            manifest = _add_blob(tar, _manifest(image, config), written)
            manifests += [
                {
                    "mediaType": f"{_OCI}.manifest.v1+json",
                    "digest": manifest[0],
                    "size": manifest[1],
                    "annotations": {"io.containerd.image.name": name},
                    "platform": {"os": "linux", "architecture": "amd64"},
                }
                for name in image.names
            ]
        index = {"schemaVersion": 2, "manifests": manifests}
        _add(tar, "index.json", json.dumps(index).encode())


def _config(image: Image) -> bytes:
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": [f"{key}={value}" for key, value in image.environment.items()],
            "Entrypoint": list(image.entrypoint),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in image.layers]},
    }
    return json.dumps(config).encode()


def _manifest(image: Image, config: tuple[str, int]) -> bytes:
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": {
            "mediaType": f"{_OCI}.config.v1+json",
            "digest": config[0],
            "size": config[1],
        },
        "layers": [
            {"mediaType": f"{_OCI}.layer.v1.tar", "digest": layer.digest, "size": layer.size}
            for layer in image.layers
        ],
    }
    return json.dumps(manifest).encode()


def _add_blob(tar: tarfile.TarFile, contents: bytes, written: set[str]) -> tuple[str, int]:
    digest = f"sha256:{hashlib.sha256(contents).hexdigest()}"
    if digest not in written:
        written.add(digest)
        _add(tar, _blob(digest), contents)
    return digest, len(contents)


def _add(tar: tarfile.TarFile, name: str, contents: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(contents)
    tar.addfile(member, io.BytesIO(contents))


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"

"""The names of the images that are built here, and of the files that an engine loads them from."""

from pathlib import Path

from elasticd import __version__

__all__ = ["AGENT", "CONTROL", "IMAGES", "PYTHON_BASE", "TORCH_BASE", "image_file"]

CONTROL, AGENT = f"elasticd:{__version__}", f"elasticd-agent:{__version__}"
PYTHON_BASE, TORCH_BASE = "localhost/python:base", "localhost/torch:base"

IMAGES = (CONTROL, AGENT, "etcd:base", "prometheus:base")
"""Those of the stack."""


def image_file(folder: Path, image: str) -> Path:
    """Return where in a folder the file of an image is."""
    return folder / f"{image.partition(':')[0]}.tar"

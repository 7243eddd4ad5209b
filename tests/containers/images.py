"""The images of the stack, as files that an engine loads."""

import os
import shutil
from pathlib import Path

import pytest

from elasticd import __version__
from tests.containers.base import SEARCH_PATH, program_files, python_files
from tests.containers.buildah import builder_in

__all__ = ["IMAGES", "image_files"]

IMAGES = (
    f"elasticd:{__version__}",
    f"elasticd-agent:{__version__}",
    "etcd:base",
    "prometheus:base",
)


def image_files(folder: Path) -> Path:
    """Build the images; or return the folder that ELASTICD_TEST_IMAGES names, which has them."""
    given = os.environ.get("ELASTICD_TEST_IMAGES")
    if given:
        return Path(given)
    if shutil.which("buildah") is None:
        pytest.skip("Images are built by buildah: apt-get install buildah")
    with builder_in(folder / "buildah") as builder:
        search = f"--env=PATH={SEARCH_PATH}"
        for name, image, has_torch in (
            ("control", IMAGES[0], False),
            ("agent", IMAGES[1], True),
        ):
            base = f"localhost/{name}:base"
            builder.pack(base, python_files(has_torch=has_torch), search)
            builder.build(f"{name}.Dockerfile", image, base=base)
        builder.pack("localhost/etcd:base", program_files("etcd"))
        entrypoint = '--entrypoint=["prometheus"]'
        builder.pack("localhost/prometheus:base", program_files("prometheus"), entrypoint)
        for image in IMAGES:
            builder.export(image, folder / f"{image.partition(':')[0]}.tar")
    return folder

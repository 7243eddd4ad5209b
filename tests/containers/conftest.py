"""Images are built once for all tests of this folder."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.base import SEARCH_PATH, program_files, python_files
from tests.containers.buildah import Builder, builder_in
from tests.containers.images import AGENT, CONTROL, IMAGES, PYTHON_BASE, TORCH_BASE, image_file


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    if shutil.which("buildah") is None:
        pytest.skip("Images are built by buildah: apt-get install buildah")
    with builder_in(tmp_path_factory.mktemp("buildah")) as builder:
        yield builder


@pytest.fixture(scope="session")
def control(builder: Builder) -> str:
    """The name of the built image of operator, autoscaler and dashboard."""
    builder.pack(PYTHON_BASE, python_files(has_torch=False), f"--env=PATH={SEARCH_PATH}")
    builder.build("control.Dockerfile", CONTROL, base=PYTHON_BASE)
    return CONTROL


@pytest.fixture(scope="session")
def agent(builder: Builder) -> str:
    """The name of the built image of agents."""
    builder.pack(TORCH_BASE, python_files(has_torch=True), f"--env=PATH={SEARCH_PATH}")
    builder.build("agent.Dockerfile", AGENT, base=TORCH_BASE)
    return AGENT


@pytest.fixture(scope="session")
def images(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of all images of the stack, as an engine loads them.

    ELASTICD_TEST_IMAGES may name one that has them already.
    """
    if given := os.environ.get("ELASTICD_TEST_IMAGES"):
        return Path(given)
    folder = tmp_path_factory.mktemp("images")
    builder: Builder = request.getfixturevalue("builder")
    for ours in ("control", "agent"):
        request.getfixturevalue(ours)
    builder.pack("localhost/etcd:base", program_files("etcd"))
    entrypoint = '--entrypoint=["prometheus"]'
    builder.pack("localhost/prometheus:base", program_files("prometheus"), entrypoint)
    for image in IMAGES:
        builder.export(image, image_file(folder, image))
    return folder

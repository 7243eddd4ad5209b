"""Images are built once for all tests of this folder."""

from pathlib import Path

import pytest

from tests.containers.images import image_files


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the images' files."""
    return image_files(tmp_path_factory.mktemp("images"))

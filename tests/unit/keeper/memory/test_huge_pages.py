"""Memory comes in huge pages where there are some, and is the same memory where there are none."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.keeper.memory import huge_pages
from elasticd.keeper.memory.huge_pages import huge_page_bytes
from elasticd.keeper.memory.memfd import SharedMemory

MIB = 1 << 20
SIZE = 5 * MIB + 4096 + 7
"""Neither whole pages nor whole huge pages."""


@pytest.fixture(params=["as they come", "none", "no collapse", "too slow", "not aligned"])
def _pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kernels that there are."""
    if request.param == "none":
        monkeypatch.setattr(huge_pages, "huge_page_bytes", lambda: 0)
    if request.param == "no collapse":
        monkeypatch.setattr(huge_pages, "_madvise", lambda *unused: -1)
    if request.param == "too slow":
        monkeypatch.setattr(huge_pages, "STEP_BYTES", 2 * MIB)
        monkeypatch.setattr("time.thread_time", iter(range(10**6)).__next__)
    if request.param == "not aligned":
        monkeypatch.setattr(huge_pages, "_mmap", lambda *unused: huge_pages._FAILED)
        monkeypatch.setattr(huge_pages, "_lost", [])
    yield
    gc.collect()


@pytest.mark.usefixtures("_pages")
def test_memory_is_as_large_as_it_was_asked_for_and_shared() -> None:
    """With every byte in its place, and none beside it."""
    memory = SharedMemory.new(SIZE)
    other = SharedMemory(os.dup(memory.file))
    pattern = os.urandom(4099)
    whole = (pattern * (SIZE // len(pattern) + 1))[:SIZE]
    memory.view[:] = whole
    other.populate()
    assert len(other.view) == SIZE and bytes(other.view) == whole
    found = os.fstat(memory.file)
    assert found.st_size == SIZE
    assert SIZE <= found.st_blocks * 512 < SIZE + 4096, "no more memory than was asked for"


@pytest.mark.usefixtures("_pages")
def test_view_outlives_the_memory_that_gave_it() -> None:
    view = SharedMemory.new(SIZE).view
    gc.collect()
    view[:2] = b"ab"
    view[-2:] = b"yz"
    assert bytes(view[:2]) + bytes(view[-2:]) == b"abyz"


@pytest.mark.usefixtures("_pages")
def test_address_space_is_given_back() -> None:
    """Many mappings of several MiB leave none; those of earlier tests are not counted."""
    made: set[str] = set()

    def mapped() -> int:
        lines = Path("/proc/self/maps").read_text().splitlines()
        own = [line for line in lines if "memfd:elasticd-checkpoint" in line]
        return sum(line.split()[4] in made for line in own)

    for _ in range(20):
        memory = SharedMemory.new(SIZE)
        other = SharedMemory(os.dup(memory.file))
        made.add(str(os.fstat(memory.file).st_ino))
        assert mapped() > 0
        del memory, other
    gc.collect()
    assert mapped() == 0


def test_mapping_begins_at_a_huge_page() -> None:
    """As large memory in each process has to, or the pages are mapped one by one."""
    page = huge_page_bytes()
    if page:
        memory = SharedMemory.new(page + 4096, touch=False)
        other = SharedMemory(os.dup(memory.file))
        assert memory._address % page == other._address % page == 0
        assert memory._address != other._address


def test_huge_pages_are_asked_for_before_ordinary_ones_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty file has next to nothing to be moved; a full one all of it."""
    page = huge_page_bytes() or 2 * MIB
    monkeypatch.setattr(huge_pages, "huge_page_bytes", lambda: page)
    asked: list[tuple[int, int]] = []

    def madvise(address: int, size: int, advice: int) -> int:
        asked.append((size, os.fstat(memory_file[-1]).st_blocks * 512))
        return 0

    memory_file: list[int] = []
    monkeypatch.setattr(huge_pages, "_madvise", madvise)
    real = os.memfd_create

    def noted(name: str, flags: int) -> int:
        memory_file.append(real(name, flags))
        return memory_file[-1]

    monkeypatch.setattr(os, "memfd_create", noted)
    SharedMemory.new(2 * page + 1)
    assert asked == [(2 * page, 2 * 4096)]

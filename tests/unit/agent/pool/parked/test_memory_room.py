"""Where no worker is parked for want of memory."""

from pathlib import Path

import pytest

from elasticd_agent.pool.parked.memory_room import ROOM_BYTES, why_no_room

PLENTY = 4 * ROOM_BYTES


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with memory to spare, and a container without a limit."""
    write(tmp_path / "proc/sys/vm/overcommit_memory", "0")
    write(tmp_path / "proc/meminfo", f"MemTotal: 1 kB\nMemAvailable: {PLENTY >> 10} kB")
    write(tmp_path / "proc/self/cgroup", "0::/box")
    write(tmp_path / "groups/box/memory.max", "max")
    write(tmp_path / "groups/box/memory.current", "1000")
    write(tmp_path / "groups/box/memory.stat", "active_file 0")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def reason(machine: Path) -> str:
    return why_no_room(machine / "proc", machine / "groups")


def test_there_is_room_where_nothing_says_otherwise(machine: Path) -> None:
    """Nor does a kernel matter that tells nothing of all this."""
    assert not reason(machine)
    assert not why_no_room(machine / "none", machine / "none")


def test_kernel_that_promises_no_more_than_it_has_is_asked_for_none(machine: Path) -> None:
    """It would count each with all the memory that it shares."""
    write(machine / "proc/sys/vm/overcommit_memory", "2")
    assert "overcommit_memory" in reason(machine)


def test_container_that_is_nearly_full_has_no_room(machine: Path) -> None:
    """What the page cache would give back counts as free."""
    write(machine / "groups/box/memory.max", str(PLENTY))
    assert not reason(machine)
    write(machine / "groups/box/memory.current", str(PLENTY - ROOM_BYTES // 2))
    assert "free" in reason(machine)
    write(machine / "groups/box/memory.stat", f"active_file {ROOM_BYTES}")
    assert not reason(machine)


def test_machine_that_is_nearly_full_has_no_room(machine: Path) -> None:
    """There may be no container, and others on the machine."""
    write(machine / "proc/meminfo", f"MemAvailable: {ROOM_BYTES >> 11} kB")
    assert "free" in reason(machine)

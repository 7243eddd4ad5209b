"""Memory without a name: shared, closed with its last reference, and of no forked process."""

import gc
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.errors import EnvironmentProblem, Unavailable
from elasticd.keeper.client import Client
from elasticd.keeper.memory.free_memory import room_bytes
from elasticd.keeper.memory.memfd import SharedMemory
from tests.fixtures.open_files import open_files, wait_until_closed
from tests.unit.keeper.site import memfds


def in_a_fork(look: Callable[[], bytes]) -> bytes:
    """What a forked process sees."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(sending, look() or b"-")
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


def test_what_one_writes_the_other_reads() -> None:
    """Two mappings of one file, of any size, none too."""
    for size in (0, 1, 5000):
        memory = SharedMemory.new(size)
        other = SharedMemory(os.dup(memory.file))
        assert other.size == size
        memory.view[:] = b"x" * size
        assert bytes(other.view) == b"x" * size
        memory.populate()


def test_file_is_closed_with_the_last_reference() -> None:
    """A hundred times; a view that somebody has keeps the bytes, not for ever."""
    before = open_files()
    for _ in range(100):
        memory = SharedMemory.new(4096)
        view = memory.view
        del memory
        view[:2] = b"ab"
        del view
    gc.collect()
    wait_until_closed(before)


def test_memory_that_cannot_be_had_is_told_and_leaves_nothing() -> None:
    """More than there is, which Linux would give, and kill somebody later; more than there are
    addresses."""
    before = open_files()
    for is_touched in (True, False):
        with pytest.raises(EnvironmentProblem, match="cannot be had"):
            SharedMemory.new(1 << 50, touch=is_touched)
    file = os.memfd_create("elasticd-checkpoint")
    os.ftruncate(file, 1 << 62)
    with pytest.raises(EnvironmentProblem, match="cannot be mapped"):
        SharedMemory(file)
    wait_until_closed(before)


def test_room_is_the_least_that_machine_and_groups_have(tmp_path: Path) -> None:
    """What the page cache holds can be had; a group without a limit does not count."""
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    inner = groups / "pod" / "container"
    inner.mkdir(parents=True)
    (proc / "self").mkdir(parents=True)
    assert room_bytes(proc, groups) is None
    (proc / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable: 500 kB\nHugePages_Free: 0\n")
    (proc / "self" / "cgroup").write_text("0::/pod/container\n")
    assert room_bytes(proc, groups) == 500 << 10
    for folder, most in ((inner, "max"), (inner.parent, "5000")):
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.current").write_text("4000\n")
        (folder / "memory.stat").write_text("anon 9\nactive_file 20\ninactive_file 3\n")
    assert room_bytes(proc, groups) == 1023
    (inner / "memory.max").write_text("4500\n")
    assert room_bytes(proc, groups) == 523


def test_forked_process_has_neither_the_memory_nor_its_file() -> None:
    """A data loader's process would keep it as long as it lives."""
    memory = SharedMemory.new(1 << 16)
    assert memfds()

    def look() -> bytes:
        with open("/proc/self/maps") as maps:
            mapped = maps.read().count("memfd:elasticd-checkpoint")
        return f"{memfds().total()} {mapped}".encode()

    assert in_a_fork(look) == b"0 0"
    memory.view[:1] = b"x"


def test_forked_process_that_lets_go_later_hits_no_other_file() -> None:
    """The numbers of what it does not have stay taken until their objects close them."""
    held = [SharedMemory.new(4096)]

    def look() -> bytes:
        opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]
        held.clear()
        gc.collect()
        for each in opened:
            os.fstat(each)
        return b"good"

    assert in_a_fork(look) == b"good"


def test_forked_process_has_no_connection() -> None:
    """Two who ask over one would take each other's answers; and a keeper could not see the end of
    its worker."""
    name = f"elasticd-test-{os.getpid()}-{os.urandom(4).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + name)
        listener.listen(1)
        client = Client(name)
        accepted, _ = listener.accept()

        def look() -> bytes:
            accepted.close()
            try:
                client.ask(object(), object)
            except Unavailable:
                return b"none"
            return b"some"

        receiving, sending = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(sending)
            os.read(receiving, 1)
            os._exit(0)
        os.close(receiving)
        client.close()
        with accepted:
            accepted.settimeout(10.0)
            assert accepted.recv(1) == b"", "the child, which lives, holds it"
            os.close(sending)
            os.waitpid(pid, 0)
            again = Client(name)
            client = again
            assert in_a_fork(look) == b"none"
            again.close()

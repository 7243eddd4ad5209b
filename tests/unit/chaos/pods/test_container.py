"""Processes of containers and of kubelets, found as this machine's kernel shows them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.jobs.recorder import pod_life
from chaos.pods.container import began_ticks, contained, in_container, inner_pid
from chaos.pods.program import kubelet_of
from tests.fixtures.pool import wait_until

ID = "4f5e6d7c8b9a"


@pytest.mark.parametrize(
    ("text", "is_in"),
    [
        (f"3:memory:/cluster/node1/{ID}\n2:cpu:/\n", True),
        (f"0::/kubepods.slice/kubepods-pod7.slice/cri-containerd-{ID}.scope\n", True),
        (f"3:memory:/{ID}/other\n", False),
        ("0::/\n", False),
    ],
)
def test_a_container_is_the_last_part_of_a_control_groups_path(text: str, is_in: bool) -> None:
    assert in_container(text, ID) is is_in


def test_nothing_is_in_a_container_without_an_id() -> None:
    assert not in_container("0::/\n", "") and contained("") == []


def test_the_inner_pid_is_that_of_the_innermost_namespace() -> None:
    assert inner_pid("Name:\tx\nNSpid:\t4711\t12\t1\n") == 1
    assert inner_pid(Path("/proc/self/status").read_text()) == os.getpid()


def test_a_name_with_brackets_does_not_move_the_time_of_the_start() -> None:
    fields = " ".join(["S", *["0"] * 18, "99", "0"])
    assert began_ticks(f"12 (a) b) {fields}") == 99


def test_a_rank_tells_the_life_of_its_container_as_the_runner_sees_it() -> None:
    ticks = began_ticks(Path("/proc/1/stat").read_text())
    assert pod_life().endswith(f"@{ticks}")


@pytest.fixture
def kubelet() -> Iterator[int]:
    """A process that is called as a kubelet is, and waits."""
    words = ["/usr/bin/kubelet", "-c", "read word", "sh", "--hostname-override=feigned"]
    with subprocess.Popen(words, executable="/bin/sh", stdin=subprocess.PIPE) as process:
        # A process has no words for a moment after its program was put in its place.
        wait_until(Path(f"/proc/{process.pid}/cmdline").read_bytes, because="it has its words")
        yield process.pid


def test_a_kubelet_is_known_by_the_node_that_it_was_started_for(kubelet: int) -> None:
    found = kubelet_of("feigned")
    assert found is not None and found.pid == kubelet
    assert kubelet_of("feigned-not") is None

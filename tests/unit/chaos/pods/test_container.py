"""Processes of containers, found as this machine's kernel shows them."""

import os
from pathlib import Path

import pytest

from chaos.jobs.recorder import pod_life
from chaos.pods.container import began_ticks, contained, in_container, inner_pid

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

"""What a container's groups allow of memory, by files of both versions."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from elasticd.telemetry.cgroup import (
    killed_together,
    memory_groups,
    memory_limit,
    oom_kill_count,
)

GIB = 1 << 30
NO_LIMIT_V1 = "9223372036854771712"


def tree(top: Path, cgroup: str, groups: Mapping[str, Mapping[str, str]]) -> tuple[Path, Path]:
    """Make /proc and /sys/fs/cgroup: folders of files."""
    proc, found = top / "proc", top / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(cgroup)
    found.mkdir()
    for folder, files in groups.items():
        (found / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (found / folder / name).write_text(f"{text}\n")
    return proc, found


def v1(limit: str, kills: int = 0) -> dict[str, str]:
    """Files of a group of version 1."""
    return {
        "memory.limit_in_bytes": limit,
        "memory.usage_in_bytes": "1000",
        "memory.stat": "cache 9\ntotal_active_file 20\ntotal_inactive_file 3",
        "memory.oom_control": f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}",
    }


def v2(limit: str, kills: int = 0) -> dict[str, str]:
    """Files of a group of version 2."""
    return {
        "memory.max": limit,
        "memory.current": "1000",
        "memory.stat": "anon 9\nactive_file 20\ninactive_file 3",
        "memory.events": f"low 0\nhigh 0\nmax 7\noom 5\noom_kill {kills}\noom_group_kill 0",
    }


def test_a_container_of_version_2_has_its_group_at_the_top(tmp_path: Path) -> None:
    """Its own namespace shows it no other."""
    where = tree(tmp_path, "0::/\n", {"": v2(str(2 * GIB), kills=3)})
    limit = memory_limit(*where)
    assert limit is not None and limit.size_bytes == 2 * GIB
    assert limit.path == where[1] / "memory.max"
    assert oom_kill_count(*where) == 3


def test_a_container_of_version_1_does_not_see_the_path_that_is_named(tmp_path: Path) -> None:
    """Its group is mounted at the top, under the controller's name; /proc has the host's path."""
    cgroup = "9:pids:/kubepods/a/b\n4:memory:/kubepods/a/b\n0::/\n"
    where = tree(tmp_path, cgroup, {"memory": v1(str(GIB), kills=2), "": v2("max", kills=9)})
    limit = memory_limit(*where)
    assert limit is not None and limit.size_bytes == GIB
    assert oom_kill_count(*where) == 2
    assert [group.room_bytes for group in memory_groups(*where)][-1] == GIB - 1000 + 23


def test_the_least_limit_counts_and_the_kills_of_the_own_group(tmp_path: Path) -> None:
    """A pod's limit is below its container's; kills of the pod's other containers are not ours."""
    where = tree(
        tmp_path,
        "0::/pod/container\n",
        {"pod": v2(str(GIB), kills=8), "pod/container": v2("max", kills=1)},
    )
    limit = memory_limit(*where)
    assert limit is not None and limit.path == where[1] / "pod" / "memory.max"
    assert oom_kill_count(*where) == 1


@pytest.mark.parametrize(
    ("cgroup", "groups"),
    [
        ("", {}),
        ("0::/\n", {}),
        ("4:memory:/a\n", {"memory/a": v1(NO_LIMIT_V1)}),
        ("0::/a\n", {"a": v2("max")}),
        ("no colon\n", {}),
        ("0::/../../elsewhere\n", {}),
        ("0::/a\n", {"a": {"memory.max": "many", "memory.events": "oom_kill few"}}),
    ],
)
def test_no_limit_is_told_as_none(
    tmp_path: Path, cgroup: str, groups: Mapping[str, Mapping[str, str]]
) -> None:
    """A machine without groups, groups without a limit, and files that say something else."""
    where = tree(tmp_path, cgroup, groups)
    assert memory_limit(*where) is None
    assert oom_kill_count(*where) in (None, 0)


@pytest.mark.parametrize(
    ("inner", "outer", "found"), [("1", "0", "pod/a"), ("0", "1", "pod"), ("0", "0", "")]
)
def test_a_group_that_is_killed_as_a_whole_is_known(
    tmp_path: Path, inner: str, outer: str, found: str
) -> None:
    """The kernel takes the outermost that says so; any is enough."""
    groups = {
        "pod": {**v2("max"), "memory.oom.group": outer},
        "pod/a": {**v2("max"), "memory.oom.group": inner},
    }
    where = tree(tmp_path, "0::/pod/a\n", groups)
    expected = where[1] / found / "memory.oom.group" if found else None
    assert killed_together(*where) == expected


def test_version_1_kills_one_process(tmp_path: Path) -> None:
    """It has no such file."""
    where = tree(tmp_path, "4:memory:/a\n0::/\n", {"memory": v1(str(GIB))})
    assert killed_together(*where) is None

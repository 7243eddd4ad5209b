"""The search path of a worker is the one that its own environment gives."""

import subprocess
import sys
from pathlib import Path

import pytest

from elasticd_agent.pool.worker.as_main import python_path, search_path


def test_pythonpath_is_read_as_python_does() -> None:
    """Relative to the folder it starts in; an empty entry is that folder; none if unset."""
    assert python_path({"PYTHONPATH": "/a:b::../c"}, "/w/d") == ["/a", "/w/d/b", "/w/d", "/w/c"]
    assert python_path({"PYTHONPATH": ""}, "/w") == []
    assert python_path({}, "/w") == []


def test_workers_pythonpath_takes_the_place_of_the_pools() -> None:
    """What the installation gives stays, in its order; nothing stands twice."""
    now = ["/pool", "/lib", "/site"]
    assert search_path(now, ["/pool"], ["/job", "/site"]) == ["/job", "/site", "/lib"]
    assert search_path(now, ["/pool"], ["/pool"]) == now
    assert search_path(now, ["/pool"], []) == ["/lib", "/site"]


@pytest.mark.parametrize("named", [["two"], ["three", "one"], ["one", "two", "three", "gone"]])
def test_folder_that_the_installation_names_as_well_stays(tmp_path: Path, named: list[str]) -> None:
    """Where Python itself puts it: a checkout that is installed and on the agent's PYTHONPATH."""
    place = tmp_path / "site-packages"
    for folder in ("site-packages", "one", "two", "three"):
        (tmp_path / folder).mkdir()
    (place / "a.pth").write_text(f"# of nobody\nimport sys\n\n{tmp_path}/one\n../two\n")
    (place / "b.pth").write_text("../three\n../gone\n")

    def of_python(*pythonpath: str) -> list[str]:
        script = "import site, sys; site.addsitedir(sys.argv[1]); print(*sys.path, sep='\\n')"
        done = subprocess.run(
            [sys.executable, "-P", "-S", "-c", script, str(place)],
            env={"PYTHONPATH": ":".join(pythonpath)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    pools = ["/pool", *(f"{tmp_path}/{each}" for each in named)]
    for workers in (["/job"], ["/job", pools[1]]):
        assert search_path(of_python(*pools), pools, workers) == of_python(*workers)

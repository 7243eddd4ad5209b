"""A script that runs under torchrun runs here, and cannot tell the difference.

The same probe runs under both, two calls at a time, and what it saw is compared.
"""

import json
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fixtures.cluster import SCRIPTS, Call, Ended
from tests.fixtures.local_run import LocalRun

SIZE = 2
WORKERS = ("--nproc-per-node", str(SIZE))
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", *WORKERS)
OURS = ("ELASTICD_", "PYTHONUNBUFFERED", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TMPDIR")
"""What we add; TMPDIR is the test's."""
THEIRS = {"TORCHELASTIC_SIGNALS_TO_HANDLE"}
"""torchrun's note to its own process group, which its workers inherit by chance."""
OF_THE_RUN = {
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_MAX_RESTARTS",  # torchrun's default is 0
    "TEST_CLUSTER_MARK",
}
"""Variables whose values differ from call to call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    ended: Ended
    ranks: list[dict[str, Any]]

    def env(self, rank: int) -> dict[str, str]:
        env: dict[str, str] = self.ranks[rank]["env"]
        return {key: value for key, value in env.items() if not key.startswith(OURS)}


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Probed]]:
    """The probe under torchrun, as a script, as a module, and as a program."""
    place = LocalRun(tmp_path_factory.mktemp("runs"))
    script = str(SCRIPTS / "probe.py")
    python = {"PYTHONPATH": str(SCRIPTS)}
    busy = socket.create_server(("127.0.0.1", 0))
    busy_port = busy.getsockname()[1]
    calls: Mapping[str, Callable[[str], Call]] = {
        "torchrun": lambda out: Call(
            [*TORCHRUN, script, out, "--lr", "0.1"], place.folder, place.mark.environ()
        ),
        "script": lambda out: place.call(*WORKERS, script, out, "--lr", "0.1"),
        "module": lambda out: place.call(*WORKERS, "-m", "probe", out, "-m", "x", env=python),
        "program": lambda out: place.call(
            *(*WORKERS, "--master-port", str(busy_port), "--no-python", sys.executable, script, out)
        ),
    }

    def probe(name: str) -> Probed:
        out = place.folder / name
        ended = calls[name](str(out)).wait()
        assert ended.code == 0, ended.err
        return Probed(
            ended=ended, ranks=[json.loads((out / f"{r}.json").read_text()) for r in range(SIZE)]
        )

    with ThreadPoolExecutor(2) as executor:
        yield dict(zip(calls, executor.map(probe, calls), strict=True))
    place.mark.wait_none_left()
    busy.close()


@pytest.mark.parametrize("rank", range(SIZE))
def test_environment_is_torchruns(probed: Mapping[str, Probed], rank: int) -> None:
    """The same variables, and the same values but for those that name the run."""
    theirs, ours = probed["torchrun"].env(rank), probed["script"].env(rank)
    assert set(ours) == set(theirs) - THEIRS
    assert {k: v for k, v in ours.items() if k not in OF_THE_RUN} == {
        k: v for k, v in theirs.items() if k not in OF_THE_RUN | THEIRS
    }


@pytest.mark.parametrize("way", ["script", "module", "program"])
def test_ranks_find_each_other(probed: Mapping[str, Probed], way: str) -> None:
    """A collective works, and torch knows that it was launched by an elastic agent."""
    for rank, seen in enumerate(probed[way].ranks):
        assert (seen["rank"], seen["size"], seen["total"]) == (rank, SIZE, SIZE)
        assert seen["is_launched"]


def test_script_sees_what_it_sees_under_torchrun(probed: Mapping[str, Probed]) -> None:
    """Arguments, name, search path, folder, and the kind of store."""
    for ours, theirs in zip(probed["script"].ranks, probed["torchrun"].ranks, strict=True):
        assert ours["argv"][1:] == ["--lr", "0.1"]
        for fact in ("name", "script", "path", "cwd", "store"):
            assert ours[fact] == theirs[fact]


def test_module_and_program_get_their_arguments(probed: Mapping[str, Probed]) -> None:
    """What stands behind their name is theirs, also where it looks like a flag of ours."""
    for seen in probed["module"].ranks:
        assert seen["argv"][1:] == ["-m", "x"]
        assert seen["name"] == "__main__"
    for seen in probed["program"].ranks:
        assert seen["script"] == "probe.py"


def test_run_says_how_it_went(probed: Mapping[str, Probed]) -> None:
    """State changes and a summary on stderr; nothing of ours on stdout."""
    ended = probed["script"].ended
    assert "generation 1: 1 node, 2 workers (first world)" in ended.err
    assert "job succeeded" in ended.err
    assert "elasticd" not in ended.out


def test_master_port_that_is_in_use_is_in_nobodys_way(probed: Mapping[str, Probed]) -> None:
    """Each generation's store is bound to a free one; the flag is taken, and said to be void."""
    assert "--master-port has no effect" in probed["program"].ended.err

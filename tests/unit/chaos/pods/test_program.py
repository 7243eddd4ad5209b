"""A cluster's programs among the processes of this machine, and what a fault left standing."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.pods.active_fault import ActiveFaults
from chaos.pods.program import Program, api_etcd, api_server, containerd_of, kubelet_of
from tests.fixtures.pool import wait_until

NODE = "10.1.2.4"


@pytest.fixture
def started() -> Iterator[dict[str, int]]:
    """Processes that are called as a cluster's programs are, and wait."""
    calls = {
        "kubelet": ["--hostname-override=feigned", "--node-ip=10.1.2.4"],
        "containerd": [],
        "kube-apiserver": [
            *("--bind-address=10.1.2.3", "--secure-port=6443"),
            "--etcd-servers=http://10.1.2.3:2379",
        ],
        "etcd": ["--listen-client-urls=http://10.1.2.3:2379"],
    }
    running = {
        name: subprocess.Popen(
            [f"/usr/bin/{name}", "-c", "echo ready; read word", "sh", *flags],
            executable="/bin/sh",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for name, flags in calls.items()
    }
    for process in running.values():
        # The kernel shows the words of a program some time after it says that the program runs.
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    yield {name: process.pid for name, process in running.items()}
    for process in running.values():
        process.kill()  # It may stand still.
        process.communicate()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def pid_of(found: Program | None) -> int:
    return found.pid if found is not None else 0


def test_the_programs_of_a_cluster_are_known_by_their_flags(started: dict[str, int]) -> None:
    """And the containerd by the namespace that it shares with its kubelet."""
    assert pid_of(kubelet_of("feigned", NODE)) == started["kubelet"]
    assert kubelet_of("feigned-not", NODE) is None and containerd_of("feigned-not", NODE) is None
    assert pid_of(containerd_of("feigned", NODE)) > 0
    assert pid_of(api_server("https://10.1.2.3:6443")) == started["kube-apiserver"]
    assert api_server("https://10.1.2.3:6444") is None
    assert pid_of(api_etcd("https://10.1.2.3:6443")) == started["etcd"]


def test_a_node_of_that_name_in_another_cluster_is_left_alone(started: dict[str, int]) -> None:
    """Several clusters of one machine have a `node1` each."""
    assert kubelet_of("feigned", "10.1.3.4") is None
    assert containerd_of("feigned", "10.1.3.4") is None


def test_a_program_stands_still_until_it_is_resumed(started: dict[str, int]) -> None:
    kubelet = kubelet_of("feigned", NODE)
    assert kubelet is not None
    # A signal is obeyed some time after it was sent.
    kubelet.stop()
    wait_until(lambda: state_of(kubelet.pid) == "T", because="it stands still")
    kubelet.resume()
    wait_until(lambda: state_of(kubelet.pid) in "SR", because="it goes on")


def test_what_stands_is_undone_once_the_newest_first_whatever_one_of_them_raises() -> None:
    said: list[str] = []

    def fail() -> None:
        said.append("b")
        raise RuntimeError("cannot")

    standing = ActiveFaults()
    first = standing.blow("a", lambda: None, lambda: said.append("a"))
    second = standing.blow("b", lambda: None, fail)
    third = standing.blow("c", lambda: None, lambda: said.append("c"))
    never = standing.blow("d", lambda: None, lambda: said.append("d"))
    for blow in (first, second, third):
        blow.strike()
    assert third.undo is not None and never.undo is not None
    third.undo()
    third.undo()
    never.undo()
    with pytest.raises(RuntimeError, match="cannot"):
        standing.undo_all()
    assert said == ["c", "b", "a"]

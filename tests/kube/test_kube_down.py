"""A cluster that is taken down leaves nothing on the machine, whatever state it was in."""

import ipaddress
import os
import subprocess
from pathlib import Path

import pytest

from tests.kube.testbed.cgroup import cgroups_left
from tests.kube.testbed.cluster import Cluster
from tests.kube.testbed.daemon import wait_until
from tests.kube.testbed.network import RANGES, Network
from tests.kube.workload import daemon_set

pytestmark = pytest.mark.timeout(300)


def _mounts() -> list[str]:
    return sorted(line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())


def _state() -> dict[str, list[str]]:
    """Return what of this machine a cluster could leave behind."""
    return {
        "mounts": _mounts(),
        "links": sorted(os.listdir("/sys/class/net")),
        "sockets": sorted(os.listdir("/run")),
        "libraries": sorted(os.listdir("/var/lib")),
        "logs": sorted(os.listdir("/var/log")),
    }


def _ways_out(network: Network) -> list[str]:
    """Return the addresses of a cluster for which this machine has a way; asks the kernel alone.

    Another cluster that runs has its own way to its own addresses.
    """
    own = f"{network.name}-host"
    links = [name for name in os.listdir("/sys/class/net") if name.startswith("ekube")]
    others = [f" dev {name} " for name in links if name != own]
    addresses = [network.control_address, network.address(network.nodes[0])]
    for each in map(ipaddress.ip_network, (*RANGES, *map(network.pod_range, network.nodes))):
        addresses += [str(each[1]), str(each[-2])]
    found = []
    for address in addresses:
        asked = ["ip", "route", "get", address]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode == 0 and not any(other in done.stdout for other in others):
            found.append(done.stdout)
    return found


def test_down_leaves_nothing(other_kube_cluster: Cluster) -> None:
    """No process, namespace, link, mount, control group, socket or folder."""
    before = _state()
    other_kube_cluster.up()
    kubectl = other_kube_cluster.api.kubectl
    manifest = daemon_set("idle", ("sleep", "100000"))
    kubectl("apply", "-f", "-", stdin=manifest)
    wait_until(
        lambda: (
            kubectl("get", "pods", "-o", "jsonpath={.items[*].status.phase}").split()
            == ["Running"] * 3
        ),
        "the pods run",
        60.0,
    )
    there = " ".join(other_kube_cluster.left())
    for kind in ("namespace", "link", "control group", "process", "folder"):
        assert kind in there
    other_kube_cluster.down()
    assert _ways_out(other_kube_cluster.network) == []
    assert other_kube_cluster.left() == []
    assert cgroups_left(other_kube_cluster.network.name) == []
    assert _state() == before


def test_down_of_what_is_half_up_leaves_nothing(other_kube_cluster: Cluster) -> None:
    """A command that was interrupted: a network, and an API server without its record."""
    other_kube_cluster.network.up()
    other_kube_cluster.folder.mkdir(parents=True)
    other_kube_cluster.control_plane.api.start()
    for record in other_kube_cluster.folder.rglob("*.pid"):
        record.unlink()
    other_kube_cluster.down()
    assert other_kube_cluster.left() == []


def test_what_speaks_to_a_cluster_that_is_gone_stays_on_this_machine(
    other_kube_cluster: Cluster,
) -> None:
    """A kubectl that goes on gets an error; nothing of it takes the default route."""
    network = other_kube_cluster.network
    network.up()
    asked = ["ip", "route", "get", network.control_address]
    there = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert f"dev {network.name}-host" in there
    network.down()
    assert other_kube_cluster.left() == []
    assert _ways_out(network) == []

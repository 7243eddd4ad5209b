"""A whole cluster of three nodes on this machine, up and down again."""

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from tests.kube.testbed.binary import build_programs, cache_folder
from tests.kube.testbed.cgroup import cgroups_left, kill_cgroup, remove_cgroup
from tests.kube.testbed.control.api_server import ApiServer
from tests.kube.testbed.control.plane import ControlPlane
from tests.kube.testbed.daemon import wait_until
from tests.kube.testbed.image.store import ImageStore
from tests.kube.testbed.kernel import require_kernel, require_room
from tests.kube.testbed.network import Network
from tests.kube.testbed.node import Node
from tests.kube.testbed.package import FOR_NODES, Missing, require

__all__ = ["NODES", "Cluster"]

NODES = ("node1", "node2", "node3")
_GPUS = 2
_GPU_LABEL = "nvidia.com/gpu.present"
_READY_LIMIT_S = 60.0


class Cluster:
    """One cluster; its number tells it from others on the same machine.

    Its state is a folder in the cache: a later process finds the cluster that an earlier one left
    running.
    """

    def __init__(self, number: int = 0) -> None:
        """Describe it; nothing starts yet."""
        self.folder = cache_folder() / f"cluster{number}"
        self.network = Network(number=number, nodes=NODES)
        self.control_plane = ControlPlane(self.folder / "control", self.network)
        self._images = ImageStore(cache_folder() / "images")
        self.nodes: Mapping[str, Node] = {
            name: Node(
                name,
                self.folder / name,
                network=self.network,
                api=self.control_plane.api,
                images=self._images,
            )
            for name in NODES
        }

    @property
    def api(self) -> ApiServer:
        """Its API server; `api.kubectl(...)` is an administrator's kubectl."""
        return self.control_plane.api

    def check(self) -> None:
        """See that this machine can have a cluster; installs programs, and starts nothing.

        Raises:
            Missing: the machine lacks a program, a right of root, memory or disk.
        """
        self._require_programs()
        cache_folder().mkdir(parents=True, exist_ok=True)
        require_room(cache_folder())
        require_kernel(cache_folder(), self._images.init)

    def prepare(self) -> None:
        """Build and pack what is kept for every cluster; starts nothing.

        Raises:
            Missing: the machine lacks a program, or the right to make namespaces.
            BuildFailed: the build of Kubernetes failed.
        """
        self._require_programs()
        build_programs()
        self._images.prepare()

    def up(self) -> None:
        """Start what does not run, and wait until every node is Ready and has the images.

        Raises:
            Missing: the machine lacks a program, or the right to make namespaces.
        """
        self.prepare()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.network.up()
        self.control_plane.start()
        for node in self.nodes.values():
            node.start()
        self.import_project()
        for node in self.nodes.values():
            node.join()
        for name in self.nodes:
            self.wait_ready(name)
            self.feign_gpus(name)
        self.wait_service_account("default")

    def down(self) -> None:
        """End it and remove every trace of it; without effect if there is none.

        Raises:
            AssertionError: something could not be removed; the message names it.
        """
        for node in self.nodes.values():
            node.power_off()
        self.control_plane.stop()
        # Whatever else somebody started in there.
        for pid in self.network.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        kill_cgroup(self.network.name)
        wait_until(
            lambda: remove_cgroup(self.network.name), "the cluster's control groups are empty", 30.0
        )
        self.network.down()
        shutil.rmtree(self.folder, ignore_errors=True)
        wait_until(lambda: not self.left(), "nothing is left of the cluster", 10.0)

    def left(self) -> list[str]:
        """Return what there is of it on this machine, in words; nothing after `down`."""
        cgroups = [f"control group {path}" for path in cgroups_left(self.network.name)]
        mounts = [
            f"mount {line.split()[1]}"
            for line in Path("/proc/self/mounts").read_text().splitlines()
            if str(self.folder) in line
        ]
        processes = [f"process {pid}" for pid in self._processes()]
        folders = [f"folder {self.folder}"] if self.folder.exists() else []
        return [*self.network.left(), *cgroups, *mounts, *processes, *folders]

    def is_up(self) -> bool:
        """Whether all its processes run."""
        everybody = [*self.control_plane.daemons]
        for node in self.nodes.values():
            everybody += node.daemons
        return all(daemon.pid is not None for daemon in everybody)

    def import_project(self) -> None:
        """Give every node the project as it is now, under the names IMAGES."""
        archive = self._images.project_archive(self.folder)
        for node in self.nodes.values():
            node.import_images(archive)

    def wait_ready(self, node: str, *, is_ready: bool = True) -> None:
        """Wait until the API server has a node as Ready, or as not Ready."""
        wait_until(
            lambda: self._is_ready(node) == is_ready,
            f"{node} is {'' if is_ready else 'not '}Ready",
            _READY_LIMIT_S,
            alive=self.nodes[node].daemons if is_ready else (),
        )

    def wait_service_account(self, namespace: str) -> None:
        """Wait until a new namespace has a service account: before that it takes no pods."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        wait_until(
            lambda: self.api.get(path) is not None,
            f"namespace {namespace} has a service account",
            _READY_LIMIT_S,
        )

    def feign_gpus(self, node: str, gpus: int = _GPUS) -> None:
        """Have a node claim GPUs, which the scheduler then counts; there are none."""
        self.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {_GPU_LABEL: "true"}}})
        self.api.patch(
            f"/api/v1/nodes/{node}/status", {"status": {"capacity": {"nvidia.com/gpu": str(gpus)}}}
        )

    def _require_programs(self) -> None:
        if os.geteuid() != 0:
            raise Missing("A cluster with nodes makes namespaces and mounts: run it as root.")
        require(FOR_NODES)

    def _is_ready(self, node: str) -> bool:
        answer = self.api.get(f"/api/v1/nodes/{node}")
        conditions = json.loads(answer)["status"].get("conditions", ()) if answer else ()
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _processes(self) -> list[int]:
        """Return the processes in its namespaces, or started with a path of its folder."""
        found = set(self.network.processes())
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"{self.folder}/".encode() in (path / "cmdline").read_bytes():
                    found.add(int(path.name))
        return sorted(found - {os.getpid()})

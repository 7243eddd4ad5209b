"""A node: a machine of its own with containerd, kubelet and kube-proxy."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.kube.testbed.binary import program
from tests.kube.testbed.cgroup import kill_cgroup, make_cgroup
from tests.kube.testbed.control.api_server import ApiServer
from tests.kube.testbed.control.dns import DOMAIN
from tests.kube.testbed.control.kubeconfig import User
from tests.kube.testbed.control.plane import KUBE_PROXY
from tests.kube.testbed.daemon import Daemon, wait_until
from tests.kube.testbed.image.archive import PAUSE_IMAGE
from tests.kube.testbed.image.store import ImageStore
from tests.kube.testbed.machine import Machine
from tests.kube.testbed.network import Network

__all__ = ["Node"]

_SOCKET = "/run/containerd/containerd.sock"

_CONTAINERD_CONFIG = f"""
version = 2
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs"]

[plugins."io.containerd.grpc.v1.cri"]
  # Where root lacks CAP_SYS_RESOURCE a sandbox may not lower its score, and would not start.
  restrict_oom_score_adj = true
  sandbox_image = "{PAUSE_IMAGE}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/run/cni"
"""


class Node:
    """One node of a cluster; its parts can be stopped one by one."""

    def __init__(
        self, name: str, folder: Path, *, network: Network, api: ApiServer, images: ImageStore
    ) -> None:
        self.name = name
        self._folder, self._network, self._api, self._images = folder, network, api, images
        self.cgroup = f"{network.name}/{name}"
        self.machine = Machine(name, folder, init=folder / "init", netns=network.namespace(name))
        self.containerd = self.machine.program(
            "containerd", ["containerd", f"--config={folder}/containerd.toml"]
        )
        self.kubelet = self.machine.program(
            "kubelet",
            [
                str(program("kubelet")),
                f"--config={folder}/kubelet.json",
                f"--kubeconfig={folder}/kubelet.kubeconfig",
                f"--node-ip={network.address(name)}",
                "--container-runtime=remote",
                f"--container-runtime-endpoint=unix://{_SOCKET}",
                f"--hostname-override={name}",
            ],
        )
        self.kube_proxy = self.machine.program(
            "kube-proxy",
            [
                str(program("kube-proxy")),
                f"--kubeconfig={folder}/kube-proxy.kubeconfig",
                "--proxy-mode=iptables",
                f"--hostname-override={name}",
                # These would be written to the machine's own settings, which a node may not.
                "--conntrack-max-per-core=0",
                "--conntrack-tcp-timeout-established=0",
                "--conntrack-tcp-timeout-close-wait=0",
            ],
        )

    @property
    def daemons(self) -> Sequence[Daemon]:
        return (self.machine.daemon, self.containerd, self.kubelet, self.kube_proxy)

    def start(self) -> None:
        """Start what does not run, up to containerd; `join` lets it into the cluster."""
        self._folder.mkdir(parents=True, exist_ok=True)
        make_cgroup(self.cgroup)
        self._images.lend(self._folder)
        if not (self._folder / "init").exists():
            shutil.copy2(self._images.init, self._folder / "init")
        self._write_configs()
        self.machine.start()
        self._write_network_config()
        self.containerd.start()
        wait_until(
            lambda: (self.machine.root / _SOCKET.lstrip("/")).exists(),
            f"containerd of {self.name} listens",
            30.0,
            alive=(self.containerd,),
        )

    def join(self) -> None:
        """Start kubelet and kube-proxy; the node is Ready some seconds later."""
        self.kubelet.start()
        self.kube_proxy.start()

    def power_off(self) -> None:
        """End everything on the node at once; its disk stays, and `start` boots it again."""
        self.machine.power_off()
        # Its containers were in its pid namespace; a process that somebody sent in is not.
        kill_cgroup(self.cgroup)

    def import_images(self, archive: Path) -> None:
        """Import the images of a docker or OCI archive; it must lie where the node sees it."""
        self.machine.run("ctr", "-n=k8s.io", "images", "import", "--all-platforms", str(archive))

    def images(self) -> list[str]:
        """Return the names of the images that it has."""
        return self.machine.run("ctr", "-n=k8s.io", "images", "list", "-q").split()

    def _write_configs(self) -> None:
        (self._folder / "containerd.toml").write_text(_CONTAINERD_CONFIG)
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            # The disk belongs to the machine, which may well be fuller than a kubelet likes.
            "evictionHard": {},
            "imageGCHighThresholdPercent": 100,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "clusterDNS": [self._network.control_address],
            "clusterDomain": DOMAIN,
            # Nobody knows names of the world outside, which no pod reaches.
            "resolvConf": "",
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": 8,
            "syncFrequency": "10s",
        }
        (self._folder / "kubelet.json").write_text(json.dumps(kubelet, indent=1))
        self._api.write_kubeconfig(self._folder / "kubelet.kubeconfig", User.node(self.name))
        self._api.write_kubeconfig(self._folder / "kube-proxy.kubeconfig", KUBE_PROXY)

    def _write_network_config(self) -> None:
        """Tell containerd how its pods are connected: by a bridge, with addresses of the node."""
        config = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "pods",
                    "isGateway": True,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": self._network.pod_range(self.name)}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }
        folder = self.machine.root / "run" / "cni"
        folder.mkdir(exist_ok=True)
        (folder / "10-pods.conflist").write_text(json.dumps(config))

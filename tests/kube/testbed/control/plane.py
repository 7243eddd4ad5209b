"""What decides in a cluster: API server, controller manager, scheduler, names."""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.kube.testbed.binary import program
from tests.kube.testbed.control.api_server import ApiServer
from tests.kube.testbed.control.kubeconfig import User
from tests.kube.testbed.daemon import Daemon
from tests.kube.testbed.network import Network

__all__ = ["KUBE_PROXY", "ControlPlane"]

KUBE_PROXY = User(name="system:kube-proxy")
_CONTROLLER_MANAGER = User(name="system:kube-controller-manager")
_SCHEDULER = User(name="system:kube-scheduler")
_PROJECT = Path(__file__).parents[4]
_PORT, _ETCD_PORT, _ETCD_PEER_PORT = 6443, 2379, 2380

# A node that is silent for this long is NotReady; the default of 40 s would make every test of a
# lost node wait. Its pods go after the 300 s of the admission plugin's tolerations, or as they say.
_NODE_GRACE_S = 12


class ControlPlane:
    """The control plane of one cluster, in the network's own namespace."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.api = ApiServer(
            folder,
            host=network.control_address,
            port=_PORT,
            etcd_port=_ETCD_PORT,
            etcd_peer_port=_ETCD_PEER_PORT,
            users=(
                KUBE_PROXY,
                _CONTROLLER_MANAGER,
                _SCHEDULER,
                *map(User.node, network.nodes),
            ),
            has_controllers=True,
            prefix=network.enter,
        )
        self._folder, self._prefix = folder, network.enter
        self.controller_manager = self._daemon(
            "kube-controller-manager",
            _CONTROLLER_MANAGER,
            f"--root-ca-file={self.api.ca_file}",
            f"--service-account-private-key-file={self.api.service_account_key}",
            # Each controller with the rights of its own role, as in a cluster that people use.
            "--use-service-account-credentials=true",
            f"--node-monitor-grace-period={_NODE_GRACE_S}s",
            "--node-monitor-period=2s",
            "--horizontal-pod-autoscaler-sync-period=5s",
            "--leader-elect=false",
        )
        self.scheduler = self._daemon("kube-scheduler", _SCHEDULER, "--leader-elect=false")
        self.dns = Daemon(
            "dns",
            [
                *network.enter,
                *(sys.executable, "-m", "tests.kube.testbed.control.dns"),
                f"--kubeconfig={self.api.kubeconfig}",
                f"--address={network.control_address}",
            ],
            folder,
            cwd=_PROJECT,
        )

    def start(self) -> None:
        """Start all of it, and wait until the API server is ready."""
        self.api.start()
        for daemon, user in (
            (self.controller_manager, _CONTROLLER_MANAGER),
            (self.scheduler, _SCHEDULER),
        ):
            self.api.write_kubeconfig(self._kubeconfig(daemon.name), user)
            daemon.start()
        self.dns.start()

    def stop(self) -> None:
        """Stop all of it."""
        for daemon in (self.dns, self.scheduler, self.controller_manager):
            daemon.stop(limit_s=2.0)
        self.api.stop()

    @property
    def daemons(self) -> Sequence[Daemon]:
        return (
            self.api.etcd.daemon,
            self.api.daemon,
            self.controller_manager,
            self.scheduler,
            self.dns,
        )

    def _daemon(self, name: str, user: User, *flags: str) -> Daemon:
        config = self._kubeconfig(name)
        command = [
            *self._prefix,
            str(program(name)),
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            "--bind-address=127.0.0.1",
            # The old port without TLS.
            "--port=0",
            *flags,
        ]
        return Daemon(name, command, self._folder)

    def _kubeconfig(self, name: str) -> Path:
        return self._folder / f"{name}.kubeconfig"

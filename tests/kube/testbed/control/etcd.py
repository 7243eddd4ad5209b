"""The etcd of the API server: one member, of its own, that no job writes to."""

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from elasticd.store.private_etcd.etcd_program import find_etcd
from tests.kube.testbed.daemon import Daemon, wait_until

__all__ = ["Etcd"]


class Etcd:
    """One etcd that listens on one address; what it holds stays in its folder."""

    def __init__(
        self,
        folder: Path,
        *,
        host: str,
        port: int,
        peer_port: int,
        prefix: Sequence[str] = (),
        dies_with_us: bool = False,
    ) -> None:
        self.url = f"http://{host}:{port}"
        peer = f"http://{host}:{peer_port}"
        command = [
            *prefix,
            str(find_etcd()),
            "--name=kubernetes",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=kubernetes={peer}",
            "--logger=zap",
            "--log-level=warn",
            # What a test writes does not outlive the machine.
            "--unsafe-no-fsync",
        ]
        self.daemon = Daemon("etcd", command, folder, dies_with_us=dies_with_us)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.daemon.start()
        wait_until(self._is_healthy, "etcd is healthy", 30.0, alive=(self.daemon,))

    def stop(self) -> None:
        self.daemon.stop()

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return bool(json.load(answer).get("health") == "true")
        except (OSError, ValueError, urllib.error.URLError):
            return False

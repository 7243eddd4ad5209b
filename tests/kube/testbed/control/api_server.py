"""The API server and its etcd: all that a test of objects, watches and rules needs."""

import contextlib
import json
import ssl
import subprocess
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.fixtures.patience import patience_s
from tests.kube.testbed.binary import build_programs, program
from tests.kube.testbed.control.etcd import Etcd
from tests.kube.testbed.control.kubeconfig import (
    ADMIN,
    User,
    read_token,
    write_kubeconfig,
    write_tokens,
)
from tests.kube.testbed.daemon import Daemon, wait_until

__all__ = ["SERVICE_RANGE", "ApiServer"]

SERVICE_RANGE = "10.79.0.0/24"
_KUBECTL_LIMIT_S = 240.0


class ApiServer:
    """One API server with an etcd of its own, on one address, in a folder of its own.

    `kubeconfig` is an administrator's. Stopped and started again it has what it had, on the same
    address.
    """

    def __init__(
        self,
        folder: Path,
        *,
        host: str,
        port: int,
        etcd_port: int,
        etcd_peer_port: int,
        users: Iterable[User] = (),
        has_controllers: bool = False,
        prefix: Sequence[str] = (),
        dies_with_us: bool = False,
    ) -> None:
        """Describe it; nothing starts yet.

        `has_controllers`: a controller manager makes service accounts and reclaims what deleted
        objects own. Without one a pod needs no service account to be accepted.
        `prefix`: words before each command, such as those that enter a network namespace.
        """
        self.folder = folder
        self.url = f"https://{host}:{port}"
        self.kubeconfig = folder / "admin.kubeconfig"
        self.ca_file = folder / "certificates" / "apiserver.crt"
        self.service_account_key = folder / "service-account.key"
        self._tokens = folder / "tokens.csv"
        self._users = (ADMIN, *users)
        self.etcd = Etcd(
            folder,
            host=host,
            port=etcd_port,
            peer_port=etcd_peer_port,
            prefix=prefix,
            dies_with_us=dies_with_us,
        )
        command = [
            *prefix,
            str(program("kube-apiserver")),
            f"--etcd-servers={self.etcd.url}",
            f"--bind-address={host}",
            f"--secure-port={port}",
            f"--advertise-address={host}",
            f"--cert-dir={self.ca_file.parent}",
            f"--token-auth-file={self._tokens}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--service-account-key-file={self.service_account_key}",
            f"--service-account-signing-key-file={self.service_account_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            # Nobody outside the cluster knows its nodes by name.
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
            # An event of an hour ago helps nobody here; the default holds leases on etcd for that.
            "--event-ttl=1h",
            "--v=1",
        ]
        if not has_controllers:
            command += [
                "--disable-admission-plugins=ServiceAccount",
                # Nobody asks for the API server by its service, and loopback may not be one.
                "--endpoint-reconciler-type=none",
            ]
        self.daemon = Daemon("kube-apiserver", command, folder, dies_with_us=dies_with_us)

    def start(self) -> None:
        """Start etcd and API server, and wait until it is ready.

        Raises:
            Missing: Kubernetes is not built yet, and cannot be built here.
        """
        build_programs()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_tokens(self._tokens, self._users)
        _write_key(self.service_account_key)
        self.etcd.start()
        self.daemon.start()
        wait_until(
            self.is_ready, "the API server is ready", 90.0, alive=(self.daemon, self.etcd.daemon)
        )
        self.write_kubeconfig(self.kubeconfig, ADMIN)

    def stop(self) -> None:
        """Stop the API server and then its etcd."""
        # It waits for its watchers when asked, and nobody here needs that.
        self.daemon.stop(limit_s=2.0)
        self.etcd.stop()

    def write_kubeconfig(self, path: Path, user: User) -> None:
        """Write the kubeconfig of one of the users."""
        token = read_token(self._tokens, user)
        write_kubeconfig(path, url=self.url, ca_file=self.ca_file, user=user, token=token)

    def token(self, user: User = ADMIN) -> str:
        """Return a user's token, for a test that speaks HTTP by itself."""
        return read_token(self._tokens, user)

    def is_ready(self) -> bool:
        """Whether the API server says so itself."""
        return self.get("/readyz") == b"ok"

    def get(self, path: str) -> bytes | None:
        """Return what the administrator gets from a path; None if that is an error."""
        with contextlib.suppress(OSError):
            return self._request(path)
        return None

    def patch(self, path: str, change: object) -> None:
        """Merge a change into an object, or into its status, as the administrator.

        Raises:
            OSError: the API server could not be reached, or refused it.
        """
        self._request(path, json.dumps(change).encode(), method="PATCH")

    def delete(self, path: str) -> None:
        """Delete an object, as the administrator.

        Raises:
            OSError: the API server could not be reached, or refused it.
        """
        self._request(path, method="DELETE")

    def kubectl(self, *words: str, stdin: str = "", is_checked: bool = True) -> str:
        """Return what kubectl printed as the administrator.

        Raises:
            AssertionError: it failed; the message has what it said. Not with `is_checked=False`:
                then what it said is returned behind what it printed.
        """
        done = subprocess.run(
            [str(program("kubectl")), f"--kubeconfig={self.kubeconfig}", *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=patience_s(_KUBECTL_LIMIT_S),
            check=False,
        )
        if is_checked:
            assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}{done.stdout}"
            return done.stdout
        return done.stdout + done.stderr

    def _request(self, path: str, patch: bytes | None = None, *, method: str = "GET") -> bytes:
        headers = {"Authorization": f"Bearer {self.token()}"}
        if patch is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        request = urllib.request.Request(self.url + path, patch, headers, method=method)
        trust = ssl.create_default_context(cafile=str(self.ca_file))
        with urllib.request.urlopen(request, timeout=5, context=trust) as answer:
            return bytes(answer.read())


def _write_key(path: Path) -> None:
    """Write the key that signs service accounts' tokens, unless it is there."""
    if path.exists():
        return
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )

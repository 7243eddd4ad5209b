"""`elasticd operator` as a process, with an etcd, and what a user does to its objects."""

import contextlib
import json
import re
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from elasticd.kube.api.port import ELASTIC_JOBS, Name
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName
from elasticd.records.job import JobSpec, Want
from elasticd.records.keys import Keys
from elasticd.store.api import Put, StoreSettings, Txn
from elasticd.store.etcd.store import EtcdStore
from tests.kube.testbed.control.api_server import ApiServer
from tests.kube.testbed.control.kubeconfig import ADMIN, User, write_kubeconfig
from tests.kube.testbed.daemon import Daemon, wait_until

__all__ = ["CHAOS", "OPERATOR", "JobScene", "OperatorRun", "kubeconfig_of"]

LIMIT_S = 30.0
OPERATOR = User(name="system:serviceaccount:elasticd:elasticd-operator")
"""Who the operator is in a pod: with the rights that its manifest gives to its ServiceAccount."""
CHAOS = User(name="system:serviceaccount:elasticd:elasticd-chaos")
"""And who the Job is that breaks labelled jobs on purpose (deploy/kustomize/chaos)."""


class OperatorRun:
    """An operator with the rights of its manifest; use it in a `with`."""

    def __init__(self, server: ApiServer, etcd_url: str, folder: Path) -> None:
        self.server, self.keys = server, Keys()
        self.store = EtcdStore(StoreSettings(endpoints=[etcd_url]))
        config = kubeconfig_of(server, folder / "operator.kubeconfig", user=OPERATOR)
        command = [
            *(sys.executable, "-m", "elasticd", "operator", "--log-json", "--lease-ttl=3s"),
            *(f"--etcd={etcd_url}", f"--kubeconfig={config}", "--listen=127.0.0.1:0"),
        ]
        self.daemon = Daemon("operator", command, folder, dies_with_us=True)

    def __enter__(self) -> Self:
        self.daemon.start()
        self.wait_leads()
        return self

    def __exit__(self, *_: object) -> None:
        self.daemon.stop()
        self.store.close()

    def wait_leads(self) -> None:
        wait_until(
            lambda: "elasticd_operator_leader 1" in self.metrics(),
            "the operator leads",
            LIMIT_S,
            alive=(self.daemon,),
        )

    def metrics(self) -> str:
        """Return its /metrics; empty while it does not serve."""
        started = re.findall(r'"listen": ?"([^"]+)"', self._whole_log())
        if not started:
            return ""
        url = f"http://{started[-1]}/metrics"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())
        return ""

    def refused(self) -> int:
        """Return how many of its requests the API server has refused."""
        (found,) = re.findall(r'api_requests_total\{answer="refused"\} (\d+)', self.metrics())
        return int(found)

    def put(self, key: str, record: object) -> None:
        """Write a record as an agent does."""
        self.store.commit(Txn(then=(Put(key=key, value=encode(record)),)))

    def _whole_log(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self.daemon.log_path.read_text(errors="replace")
        return ""


class JobScene:
    """The ElasticJobs of one namespace, and their records in etcd."""

    def __init__(self, run: OperatorRun, namespace: str) -> None:
        self.run, self.namespace = run, namespace
        run.server.kubectl("create", "namespace", namespace)

    def kubectl(self, *words: str, stdin: str = "", is_checked: bool = True) -> str:
        whole = ("-n", self.namespace, *words)
        return self.run.server.kubectl(*whole, stdin=stdin, is_checked=is_checked)

    def apply(
        self,
        spec: Mapping[str, object] = MappingProxyType({}),
        *,
        name: str = "a",
        is_checked: bool = True,
    ) -> str:
        """Apply an object; return what kubectl said."""
        body = {
            "apiVersion": ELASTIC_JOBS.api_version,
            "kind": ELASTIC_JOBS.kind,
            "metadata": {"name": name},
            "spec": {"script": "train.py", "nodes": {"min": 1, "max": 4}, **spec},
        }
        return self.kubectl("apply", "-f", "-", stdin=json.dumps(body), is_checked=is_checked)

    def get(self, name: str = "a") -> Any:
        """Return an object; None where it is gone."""
        path = ELASTIC_JOBS.path(Name(self.namespace, name))
        return json.loads(answer) if (answer := self.run.server.get(path)) else None

    def status(self, name: str = "a") -> Any:
        return (self.get(name) or {}).get("status", {})

    def condition(self, kind: str, name: str = "a") -> Any:
        found = self.status(name).get("conditions", ())
        return next((each for each in found if each["type"] == kind), {})

    def submitted(self, name: str = "a") -> JobName:
        """Wait until the object has a job in etcd; return that job's name."""
        wait_until(lambda: bool(self.status(name).get("job")), f"{name} has a job", LIMIT_S)
        return JobName(self.status(name)["job"])

    def spec(self, job: JobName) -> JobSpec:
        item = self.run.store.get(self.run.keys.spec(job))
        assert item is not None
        return decode(JobSpec, item.value)

    def want(self, job: JobName) -> Want | None:
        """Return what the operator wishes for a job."""
        item = self.run.store.get(self.run.keys.want(job, "operator"))
        return decode(Want, item.value) if item is not None else None

    def wanted(self, job: JobName) -> int | None:
        want = self.want(job)
        return want.nodes if want is not None else None


def kubeconfig_of(server: ApiServer, path: Path, *, user: User = ADMIN, url: str = "") -> Path:
    """Write the kubeconfig of a user; `url`: where that is not the server's own."""
    write_kubeconfig(
        path, url=url or server.url, ca_file=server.ca_file, user=user, token=server.token(user)
    )
    return path

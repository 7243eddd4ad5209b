"""What the pool's side of the zygote leaves in a worker that was forked from one."""

import subprocess
import sys

from tests.fixtures.patience import patience_s

POOL = """
import gc, os
from elasticd.channel.pool import Start
from elasticd.records.job import EntryKind
from elasticd_agent.pool.launch import InForkedWorker, InheritedState
from elasticd_agent.pool.zygote import zygote_supervisor
from elasticd_agent.pool.zygote.learned_set import Script

start = Start(
    worker="w", entry_kind=EntryKind.SCRIPT, entry="train.py", args=(), cwd="/", env={},
    out_path="/dev/null", err_path="/dev/null", error_file="",
)

def be_worker(order, control_fd, *, pool_pid, kept_fds):
    # A zygote closes what the pool has open, and the files of its workers take these numbers.
    null = os.open("/dev/null", os.O_RDONLY)
    for number in range(3, 100):
        if number != null:
            os.dup2(null, number)
    raise InForkedWorker(start, null, InheritedState(kept_fds=frozenset(), environment={}))

zygote_supervisor.be_zygote = be_worker
plan = zygote_supervisor.ZygotePlan(
    script=Script(entry="train.py", kind=EntryKind.SCRIPT, folder="/"),
    record_folder="",
    pool_pid=os.getpid(),
    kept_fds=(),
    environment={},
)
supervisor = zygote_supervisor.ZygoteSupervisor(plan=plan, send=lambda word: None)
supervisor.recall()
try:
    supervisor.reconcile(0.0)
except InForkedWorker:
    pass
else:
    os.wait()
    raise SystemExit
gc.collect()
closed = [number for number in range(3, 100) if not os.path.exists(f"/proc/self/fd/{number}")]
os.write(1, f"closed {closed}\\n".encode())
os._exit(0)
"""


def test_worker_of_a_zygote_keeps_its_files_when_it_leaves_the_stack_of_the_pool() -> None:
    """One of them is its report, by which the agent learns what the script raised."""
    done = subprocess.run(
        [sys.executable, "-c", POOL],
        capture_output=True,
        text=True,
        timeout=patience_s(60.0),
        check=True,
    )
    assert done.stdout == "closed []\n", done.stderr

"""What the pool keeps of a zygote that failed."""

import os
import socket
from pathlib import Path

from elasticd.channel.wire import pack
from elasticd.records.job import EntryKind
from elasticd_agent.pool.link import Link
from elasticd_agent.pool.zygote.learned_set import LearnedSet, Script, load, record_path
from elasticd_agent.pool.zygote.word import Importing
from elasticd_agent.pool.zygote.zygote import ZygoteOrder
from elasticd_agent.pool.zygote.zygote_keeper import (
    TRIALS_LIMIT,
    ZygoteKeeper,
    ZygotePlan,
    _Zygote,
)


def test_package_at_which_a_zygote_ended_is_kept_before_anything_serves(tmp_path: Path) -> None:
    """The run may be over before another one is ready, and the next would end there again."""
    script = Script(entry="train.py", kind=EntryKind.SCRIPT, folder=str(tmp_path))
    folder = str(tmp_path / "record")
    plan = ZygotePlan(
        script=script, record_folder=folder, pool_pid=os.getpid(), kept_fds=(), environment={}
    )
    keeper = ZygoteKeeper(plan, lambda told: None)
    keeper._trials = TRIALS_LIMIT
    ours, theirs = socket.socketpair()
    learned = LearnedSet(modules=("ends", "fine"))
    order = ZygoteOrder(script=script, record_folder=folder, learned=learned)
    keeper._learned = learned
    keeper._making = _Zygote(
        pid=0, link=Link(ours.detach()), order=order, heard_s=0.0, is_reaped=True
    )
    with theirs:
        theirs.sendall(pack(Importing(package="ends")))
    keeper.tend(1.0)
    known = load(record_path(folder, script))
    assert known == learned.without("ends", "the process that imports it ends")

"""`python -m elasticd.keeper NAME`: reads settings as JSON from stdin, then runs until its end.

NAME is the name of its socket. It makes keepers visible among processes
(`control/local_run/launch.py`). The end of stdin means that the agent or the job has ended; saves
that are under way may still finish.
"""

import gc
import json
import os
import sys
from concurrent.futures import Future
from threading import Thread

from elasticd.checkpoint.commit.fail_point import arm_fail_point
from elasticd.keeper.assembly import KeeperParts, KeeperSettings, build_keeper
from elasticd.records.codec import from_plain
from elasticd.telemetry.log import configure

NOT_SAVED = 3
"""The exit code that says that the last checkpoint was given up."""
SWITCH_S = 0.0005
"""The interpreter's switch interval: how long a thread that uploads or deletes keeps one that
answers waiting."""


def main() -> None:
    keeping = from_plain(KeeperSettings, json.loads(sys.stdin.buffer.readline()))
    configure()
    arm_fail_point(os.environ)
    sys.setswitchinterval(SWITCH_S)
    made: Future[KeeperParts] = Future()
    # Threads inherit: who answers the workers stays prompt, since a step may be waiting for that.
    Thread(target=lambda: made.result().service.listen(keeping.socket), daemon=True).start()
    os.nice(keeping.niceness)
    kept = build_keeper(keeping, os.environ)
    # Nothing here makes cycles by the million, and a collection would look through all of fsspec.
    gc.collect()
    gc.freeze()
    made.set_result(kept)
    sys.stdin.buffer.read()
    is_saved = kept.close(keeping.linger_s)
    # Threads that hang in a request are not waited for.
    os._exit(0 if is_saved else NOT_SAVED)


if __name__ == "__main__":
    main()

"""`python -m elasticd.checkpoint.keeper`: settings as a line of JSON on stdin, then until its end.

The end of stdin is the end of the agent or of the job: what is under way may still be saved.
"""

import gc
import json
import os
import sys
from threading import Thread

from elasticd.checkpoint.keeper.keeping import Keeping, keep
from elasticd.records.codec import from_plain
from elasticd.telemetry.log import configure


def main() -> None:
    keeping = from_plain(Keeping, json.loads(sys.stdin.buffer.readline()))
    configure()
    os.nice(keeping.niceness)
    kept = keep(keeping)
    # Nothing here makes cycles by the million, and a collection would look through all of fsspec.
    gc.collect()
    gc.freeze()
    Thread(target=kept.service.listen, args=(keeping.socket,), daemon=True).start()
    sys.stdin.buffer.read()
    kept.saver.close(keeping.linger_s)
    sys.stdout.flush()
    os._exit(0)  # Threads that hang in a request are not waited for.


if __name__ == "__main__":
    main()

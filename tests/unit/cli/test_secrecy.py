"""What opens etcd is not for the job's own code."""

import subprocess
import sys

ASKS = """
import ctypes, subprocess, sys
PR_GET_DUMPABLE = 3
print(ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), flush=True)
if sys.argv[1:]:
    from elasticd.cli.secrecy import hide_from_user
    hide_from_user()
    print(ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), flush=True)
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""


def test_an_agent_with_a_password_cannot_be_read_by_its_user() -> None:
    """The kernel then gives /proc/PID/environ and the memory to root alone; children are free."""
    done = subprocess.run(
        [sys.executable, "-c", ASKS, ASKS], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "0", "1"]

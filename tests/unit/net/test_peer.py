"""The kernel says who is at the other end of a unix socket."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from elasticd.net.peer import peer_of

CONNECTS = """
import socket, sys
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect(sys.argv[1])
    sys.stdin.read()
"""


def test_peer_is_the_process_that_connected(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        command = [sys.executable, "-c", CONNECTS, str(tmp_path / "socket")]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as other:
            accepted, _ = listener.accept()
            with accepted:
                assert peer_of(accepted) == (other.pid, os.geteuid())
            other.communicate()


def test_both_ends_of_a_pair_are_of_who_made_it() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert peer_of(one) == peer_of(other) == (os.getpid(), os.geteuid())

"""Zombies are reaped, and nobody's exit code is stolen: with real processes."""

import subprocess
import sys

from tests.fixtures.patience import patience_s

CODE = """
import os, signal, subprocess, sys, time
from elasticd_agent.pod.orphans import Children, adopt_orphans
from elasticd_agent.pod.reaper import Reaper, reap
from elasticd_agent.pool.process.process_table import children_of, look_up

ORPHAN = '''
import os
if pid := os.fork():
    os.write(1, str(pid).encode())
    os._exit(0)
os.setsid()
os._exit(3)
'''
SLOW = "import sys; sys.stdin.read(); sys.exit(7)"
LIMIT_S = float(sys.argv[1])

def until(is_so):
    end_s = time.monotonic() + LIMIT_S
    while not is_so() and time.monotonic() < end_s:
        time.sleep(0.005)
    assert is_so()

def zombies():
    found = [look_up(pid) for pid in children_of(os.getpid())]
    return [each.pid for each in found if each is not None and each.state == "Z"]

def orphan():
    # Returns when it has ended: while it runs, nobody counts it among the zombies yet.
    ended = subprocess.run([sys.executable, "-S", "-c", ORPHAN], check=True, stdout=subprocess.PIPE)
    until(lambda: (found := look_up(int(ended.stdout))) is None or found.state == "Z")

adopt_orphans()
children = Children()
own = children.start(lambda: subprocess.Popen([sys.executable, "-S", "-c", SLOW],
    stdin=subprocess.PIPE, start_new_session=True))
alike = subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(5)"])
orphan()
until(lambda: len(zombies()) == 2)
with Reaper(children):
    until(lambda: zombies() == [alike.pid])
    own.stdin.close()
    until(lambda: sorted(zombies()) == sorted([alike.pid, own.pid]))
    for _ in range(5):
        orphan()
    until(lambda: sorted(zombies()) == sorted([alike.pid, own.pid]))
    assert alike.wait() == 5, alike.returncode
    assert own.wait() == 7, own.returncode
    children.forget(own.pid)
    with children.unchanged():
        # As while a process is being started, whose number nobody knows yet.
        orphan()
        until(lambda: len(zombies()) == 1)
        assert not reap(children) and len(zombies()) == 1
    until(lambda: zombies() == [])
assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
print("good")
"""


TWO_LOOKS = """
import subprocess, sys, time
from elasticd_agent.pod import reaper
from elasticd_agent.pod.orphans import Children

looks = []

def look(children):
    looks.append(True)
    return True

def until_there_are(number):
    end_s = time.monotonic() + float(sys.argv[1])
    while len(looks) < number and time.monotonic() < end_s:
        time.sleep(0.005)
    assert len(looks) == number, f"{len(looks)} looks"

reaper.reap = look
reaper.AGAIN_S = 0.001
with reaper.Reaper(Children()):
    until_there_are(2)
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    until_there_are(4)
print(f"{len(looks)} looks")
"""


def test_orphans_are_reaped_and_our_own_are_left_to_who_waits() -> None:
    """Ends of pools and keepers, and of what a thread started beside, keep their codes."""
    ended = subprocess.run(
        [sys.executable, "-c", CODE, str(patience_s(20.0))],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience_s(60.0),
    )
    assert (ended.stdout, ended.returncode) == ("good\n", 0), ended.stderr


def test_a_zombie_that_the_kernels_list_left_out_is_reaped_at_a_second_look() -> None:
    """As it may while another child is waited for; no signal comes a second time.

    In a process of its own, in which no child of another test ends.
    """
    ended = subprocess.run(
        [sys.executable, "-c", TWO_LOOKS, str(patience_s(20.0))],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience_s(60.0),
    )
    assert (ended.stdout, ended.returncode) == ("4 looks\n", 0), ended.stderr

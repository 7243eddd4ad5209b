"""A machine of its own for a node, as far as the kernel lends one: all namespaces but the user's.

Its first process holds a mount namespace with /run, /var/lib and /var/log for itself, a pid
namespace and a host name. So three nodes use the same default paths, a node sees
its own processes alone, and when the first process is killed the kernel ends all that ran there and
drops its mounts: a power cut, and the reason why a cluster that is taken down leaves nothing.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.kube.testbed.daemon import Daemon, wait_until

__all__ = ["Machine"]

# $1 is the folder, $2 the name, $3 the program that stays. Whole folders that every machine has are
# hidden, so that nothing has to be made in the one that lends itself.
_BOOT = """
set -e
mount --make-rprivate /
mkdir -p "$1/var/lib" "$1/var/log"
mount --bind "$1/var/lib" /var/lib
mount --bind "$1/var/log" /var/log
mount -t tmpfs tmpfs /run
mkdir /run/lock
mount --make-rshared /
hostname "$2"
touch /run/booted
exec "$3"
"""


class Machine:
    """The namespaces of one node, and commands in them."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        init: Path,
        netns: str | None = None,
        dies_with_us: bool = False,
    ) -> None:
        """Describe it. `init`: the program that is its first process and takes in the dead."""
        self.name = name
        self.folder = folder
        enter = ["nsenter", f"--net=/run/netns/{netns}"] if netns else []
        command = [
            *enter,
            *("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"),
            "--kill-child=SIGKILL",
            *("sh", "-c", _BOOT, "boot", str(folder), name, str(init)),
        ]
        self.daemon = Daemon("machine", command, folder, is_wrapped=True, dies_with_us=dies_with_us)

    @property
    def root(self) -> Path:
        """The machine's file system as it sees it, from outside."""
        return Path(f"/proc/{self.daemon.pid}/root")

    def start(self) -> None:
        """Start it unless it runs."""
        self.daemon.start()
        wait_until(
            lambda: os.path.exists(self.root / "run" / "booted"),
            f"{self.name} has booted",
            10.0,
            alive=(self.daemon,),
        )

    def power_off(self) -> None:
        """End everything on it at once, as when the current fails; its disk stays."""
        self.daemon.kill()

    def program(self, name: str, command: Sequence[str]) -> Daemon:
        """Return a program on it, not started yet."""
        return _Inside(name, command, self)

    def enter(self) -> list[str]:
        """Return the words that run a command on it."""
        pid = self.daemon.pid
        assert pid is not None, f"{self.name} is off"
        return ["nsenter", f"--target={pid}", "--mount", "--uts", "--ipc", "--net", "--pid"]

    def run(self, *command: str) -> str:
        """Return what a command on it printed.

        Raises:
            AssertionError: it failed; the message has what it said.
        """
        words = [*self.enter(), *command]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{self.name}: {' '.join(command)}: {done.stderr}"
        return done.stdout


class _Inside(Daemon):
    """A program on a machine: the way in is known only when the machine runs."""

    def __init__(self, name: str, command: Sequence[str], machine: Machine) -> None:
        super().__init__(name, command, machine.folder, is_wrapped=True)
        self._machine, self._inner = machine, list(command)

    def start(self) -> None:
        self._command = [*self._machine.enter(), *self._inner]
        super().start()

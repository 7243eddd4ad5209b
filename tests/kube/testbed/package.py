"""Which programs of the machine the testbed needs, and the Debian packages that bring them."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["FOR_BUILD", "FOR_NODES", "BuildFailed", "Missing", "require"]

FOR_BUILD = {
    "go": "golang-go",
    "gcc": "gcc libc6-dev",
    "make": "make",
    "git": "git",
    "rsync": "rsync",
    "jq": "jq",
    "patch": "patch",
    "dpkg-source": "dpkg-dev",
}
FOR_NODES = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "gcc": "gcc libc6-dev",
}

# Packages of servers start their servers, unless this file says no; the testbed starts its own.
_POLICY = Path("/usr/sbin/policy-rc.d")
_SBIN = "/usr/sbin:/sbin"
# Another apt may be at work, as a machine that has just booted updates itself.
_APT = ("apt-get", "-oDPkg::Lock::Timeout=600", "-oAcquire::Retries=3")


class Missing(Exception):
    """The machine lacks something that the testbed needs; the message says what, and what to do."""


class BuildFailed(Exception):
    """Kubernetes could not be built from its source though nothing was missing; says why."""


def require(needed: Mapping[str, str]) -> None:
    """Install what the machine lacks of the needed programs, as root on Debian.

    Raises:
        Missing: something is missing and this is not Debian with root.
    """
    packages = _packages([program for program in needed if not _found(program)], needed)
    if not packages:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(
            f"The Kubernetes testbed lacks {', '.join(packages)}: as root on Debian 12 it installs "
            f"them by itself, or run: apt-get install --no-install-recommends {' '.join(packages)}"
        )
    print(f"testbed: installing {', '.join(packages)}", flush=True)
    _install(packages)
    still = [program for program in needed if not _found(program)]
    if still:
        raise Missing(f"The packages are installed, and {', '.join(still)} still cannot be found.")


def _found(program: str) -> bool:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_SBIN}") is not None


def _packages(programs: Sequence[str], needed: Mapping[str, str]) -> list[str]:
    return sorted({name for program in programs for name in needed[program].split()})


def _install(packages: Sequence[str]) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    is_ours = not _POLICY.exists()
    if is_ours:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    try:
        _run([*_APT, "update", "-qq"], environment)
        _run([*_APT, "install", "-y", "-qq", "--no-install-recommends", *packages], environment)
    finally:
        if is_ours:
            _POLICY.unlink()


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(command, env=environment, stdout=output, stderr=output, check=False)
        if done.returncode:
            output.seek(0)
            tail = output.read().decode(errors="replace").strip().splitlines()[-5:]
            raise Missing(f"`{' '.join(command)}` failed: {' / '.join(tail)}")

"""What the kernel has to allow root before a cluster can run, tried in a second.

A container, or a sandbox that answers for a kernel, may forbid any of it. Where the cluster cannot
be, that is known before five minutes of building, and told from a fault of ours.
"""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.kube.testbed.cgroup import cgroups_left, kill_cgroup, make_cgroup, remove_cgroup
from tests.kube.testbed.daemon import wait_until
from tests.kube.testbed.machine import Machine
from tests.kube.testbed.package import Missing

__all__ = ["require_kernel", "require_room"]

_CGROUP = "elasticd-probe"
_GIB = 1 << 30
_DISK = 8 * _GIB
"""Seen: the build takes 2 GiB, and 1.3 GiB in /tmp; its programs and a running cluster 2.5 GiB."""
_MEMORY = 5 * _GIB
"""Seen: a build, a cluster that trains and other work of a machine had 6 GiB in use together."""

_TRIED = """
cd /var/lib
mkdir lower upper work merged
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged
ip netns add probe
ip netns del probe
unshare --net sh -exc '
ip link add probe type bridge
ip link add one type veth peer name two
iptables -t nat -A POSTROUTING -j MASQUERADE
'
runc --root /run/runc run --bundle /var/lib/bundle probe </dev/null
"""
_PROGRAM = "int main(void) { return 0; }"


def require_kernel(folder: Path, init: Path) -> None:
    """Try all that nodes and containers need of the kernel; `init`: see `Machine`.

    Raises:
        Missing: the kernel refused something, and the message says what.
    """
    if not any(kind == "cgroup" and "cpu" in options for kind, options in _mounts()):
        raise Missing(
            "The Kubernetes testbed needs control groups of version 1, mounted in /sys/fs/cgroup: "
            "its kubelet of 1.20 was never tried with version 2 alone."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="probe-", dir=folder) as work:
        machine = Machine("probe", Path(work), init=init, dies_with_us=True)
        try:
            make_cgroup(_CGROUP)
            _write_bundle(Path(work) / "var" / "lib" / "bundle")
            machine.start()
            machine.run("sh", "-exc", _TRIED)
        except (AssertionError, OSError) as error:
            said = " / ".join(str(error).strip().splitlines()[-3:])
            raise Missing(f"This machine cannot have the Kubernetes testbed: {said}") from None
        finally:
            machine.power_off()
            kill_cgroup(_CGROUP)
            wait_until(lambda: remove_cgroup(_CGROUP), "the probe's control group goes", 10.0)
    assert not cgroups_left(_CGROUP)


def require_room(folder: Path) -> None:
    """See that the disk of `folder` and the memory have room for the build and a cluster.

    Raises:
        Missing: one of them has not.
    """
    disk = shutil.disk_usage(folder).free
    lines = Path("/proc/meminfo").read_text().splitlines()
    memory = next(1024 * int(one.split()[1]) for one in lines if one.startswith("MemAvailable:"))
    for name, free, needed in (("disk", disk, _DISK), ("memory", memory, _MEMORY)):
        if free < needed:
            raise Missing(
                f"The Kubernetes testbed needs {needed / _GIB:.0f} GiB of {name}, and "
                f"{free / _GIB:.1f} GiB are free (cache folder: {folder})."
            )


def _write_bundle(bundle: Path) -> None:
    """Write a container for runc, in the control groups of the probe, that ends at once."""
    (bundle / "rootfs").mkdir(parents=True)
    compile_it = ["gcc", "-static", "-xc", "-", "-o", str(bundle / "rootfs" / "probe")]
    subprocess.run(compile_it, input=_PROGRAM.encode(), check=True)
    subprocess.run(["runc", "spec", "--bundle", str(bundle)], check=True)
    config = json.loads((bundle / "config.json").read_text())
    config["process"] |= {"terminal": False, "args": ["/probe"]}
    config["linux"]["cgroupsPath"] = f"/{_CGROUP}/container"
    (bundle / "config.json").write_text(json.dumps(config))


def _mounts() -> list[tuple[str, list[str]]]:
    """Return the kind of each mounted file system, and its options."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [(line[2], line[3].split(",")) for line in lines]

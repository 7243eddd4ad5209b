"""Lets two processes of this machine form a process group at the address that other nodes use.

This check finds the errors by which most first runs fail: a host name that resolves to another
interface, a firewall between a machine and its own address, an NCCL that finds no path between two
GPUs. It does not show that another machine can connect: `node_check` does this for the agents'
ports.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from elasticd.cli.doctor import two_ranks
from elasticd.cli.doctor.finding import Finding, Verdict
from elasticd.cli.doctor.torch_check import last_line
from elasticd.cli.terminal.words import seconds
from elasticd.store.private_etcd.embedded import free_port
from elasticd_agent.worker_setup.worker_env import interface_of, without_secrets

__all__ = ["check_process_group"]

_TOOK = re.compile(rf"^{two_ranks.TOOK} ([0-9.e-]+)$", re.MULTILINE)
LIMIT_S = 120.0
"""The time limit: two imports of torch from a cold disk, plus the timeouts of the script."""


def check_process_group(python: str, backend: str, address: str) -> Iterator[Finding]:
    """Form the process group and yield a finding; `backend` is gloo or nccl."""
    env = {**without_secrets(os.environ), "OMP_NUM_THREADS": "1"}
    interface = interface_of(address)
    if interface:  # Workers get the same variable.
        env.setdefault("GLOO_SOCKET_IFNAME", interface)
        env.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
    port = free_port()
    command = [python, str(Path(two_ranks.__file__))]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), backend, address, str(port)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(two_ranks.SIZE)
    ]
    try:
        said = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
    except subprocess.TimeoutExpired:
        said = []
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    what = f"two processes formed a group of {backend} over {address}"
    failed = [err for rank, (_, err) in zip(ranks, said, strict=False) if rank.returncode]
    took = [found[1] for out, _ in said if (found := _TOOK.search(out))]
    if len(took) == two_ranks.SIZE and not failed:
        took_s = max(map(float, took))
        yield Finding(
            subject="process group", verdict=Verdict.OK, found=f"{what} in {seconds(took_s)}"
        )
        return
    why = last_line(failed[0]) if failed else f"they were not done after {LIMIT_S:.0f} s"
    if "NCCL_DEBUG" in env:
        sys.stderr.writelines(out for out, _ in said)  # NCCL writes to stdout what it finds.
    yield Finding(
        subject="process group",
        verdict=Verdict.PROBLEM,
        found=f"two processes of this machine form no group of {backend} over {address}: {why}",
        advice="Workers would meet the same. Give another --local-addr, or see to a firewall "
        "between this machine and its own address."
        if backend == "gloo"
        else "Call it again with NCCL_DEBUG=INFO, which says what NCCL finds.",
    )

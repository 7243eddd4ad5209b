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
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """What one of the processes said, and how it ended."""

    code: int | None
    """The exit code; None if the process was not done in time."""
    out: str
    err: str


def check_process_group(python: str, backend: str, address: str) -> Iterator[Finding]:
    """Form the process group and yield a finding; `backend` is gloo or nccl."""
    env = {**without_secrets(os.environ), "OMP_NUM_THREADS": "1"}
    interface = interface_of(address)
    if interface:  # Workers get the same variable.
        env.setdefault("GLOO_SOCKET_IFNAME", interface)
        env.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
    ranks = _run([python, str(Path(two_ranks.__file__))], [backend, address], env)
    what = f"two processes formed a group of {backend} over {address}"
    failed = [rank.err for rank in ranks if rank.code]
    took = [found[1] for rank in ranks if (found := _TOOK.search(rank.out))]
    if len(took) == two_ranks.SIZE and not failed:
        took_s = max(map(float, took))
        yield Finding(
            subject="process group", verdict=Verdict.OK, found=f"{what} in {seconds(took_s)}"
        )
        return
    why = last_line(failed[0]) if failed else f"they were not done after {LIMIT_S:.0f} s"
    if "NCCL_DEBUG" in env:
        sys.stderr.writelines(rank.out for rank in ranks)  # NCCL writes to stdout what it finds.
    yield Finding(
        subject="process group",
        verdict=Verdict.PROBLEM,
        found=f"two processes of this machine form no group of {backend} over {address}: {why}",
        advice="Workers would meet the same. Give another --local-addr, or see to a firewall "
        "between this machine and its own address."
        if backend == "gloo"
        else "Call it again with NCCL_DEBUG=INFO, which says what NCCL finds.",
    )


def _run(command: Sequence[str], args: Sequence[str], env: Mapping[str, str]) -> list[_Rank]:
    """Run the processes until they are done, or until the limit.

    They write into files: a process whose pipe nobody reads would stand still as soon as it is
    full, with NCCL_DEBUG=INFO after a few seconds.
    """
    port, until_s = free_port(), time.monotonic() + LIMIT_S
    with ExitStack() as stack:
        ranks, codes = [], []
        for number in range(two_ranks.SIZE):
            out, err = (stack.enter_context(TemporaryFile()) for _ in range(2))
            rank = subprocess.Popen(
                [*command, str(number), *args, str(port)], env=env, stdout=out, stderr=err
            )
            stack.callback(rank.wait)
            stack.callback(rank.kill)
            ranks.append((rank, out, err))
        for rank, _, _ in ranks:
            with suppress(subprocess.TimeoutExpired):
                rank.wait(max(0.0, until_s - time.monotonic()))
            codes.append(rank.poll())
        return [
            _Rank(code=code, out=_text(out), err=_text(err))
            for code, (_, out, err) in zip(codes, ranks, strict=True)
        ]


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")

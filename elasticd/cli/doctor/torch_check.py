"""Checks the interpreter of the workers: its Python, its torch, and the GPUs that torch sees."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from elasticd.cli.doctor.finding import Finding, Verdict
from elasticd.cli.terminal.words import counted, seconds
from elasticd_agent.worker_setup.worker_env import without_secrets

__all__ = ["OLDEST_TORCH", "TorchReport", "findings_of", "last_line", "read_torch"]

OLDEST_TORCH = (2, 9)
"""The oldest supported torch, as in pyproject.toml."""
OLDEST_PYTHON = (3, 11)
LIMIT_S = 180.0
"""The time limit: an import from a cold network disk takes a minute."""

SCRIPT = """
import json, sys, time
began_s = time.monotonic()
said = {"python": sys.version.split()[0], "path": sys.executable}
try:
    import torch
    import torch.distributed as dist
except Exception as exc:
    said["failure"] = f"{type(exc).__name__}: {exc}"
else:
    said.update(torch=torch.__version__, import_s=time.monotonic() - began_s)
    said.update(gpus=torch.cuda.device_count(), cuda=torch.version.cuda or torch.version.hip or "")
    said.update(gloo=dist.is_gloo_available(), nccl=dist.is_nccl_available())
print(json.dumps(said))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchReport:
    """The report of an interpreter about itself."""

    python: str
    path: str
    failure: str = ""
    """Why torch could not be imported; empty if it could."""
    torch: str = ""
    import_s: float = 0.0
    gpus: int = 0
    cuda: str = ""
    gloo: bool = False
    nccl: bool = False


def read_torch(python: str, limit_s: float = LIMIT_S) -> TorchReport | Finding:
    """Ask an interpreter in a separate process; return a Finding if the process does not answer."""
    try:
        done = subprocess.run(
            [python, "-c", SCRIPT],
            env=without_secrets(os.environ),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _broken(f"{python} had not imported torch after {limit_s:.0f} s")
    except OSError as exc:
        return _broken(f"{python} cannot be started: {exc.strerror}")
    try:
        return TorchReport(**json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError, TypeError):
        how = f"ended with {done.returncode}: {last_line(done.stderr)}"
        return _broken(f"{python} with `import torch` {how}")


def findings_of(report: TorchReport, gpus: int) -> Iterator[Finding]:
    """Yield the findings about an interpreter; `gpus` is the number of GPUs visible here."""
    where = f"Python {report.python} at {report.path}"
    if _numbers(report.python) < OLDEST_PYTHON:
        yield _problem(
            "python",
            f"{where} is older than 3.11",
            "Make an environment with a newer Python.",
        )
    if report.failure:
        yield _problem(
            "torch",
            f"{where} cannot import torch: {report.failure}",
            "Install the build for this machine: pip install torch.",
        )
        return
    if _numbers(report.torch) < OLDEST_TORCH:
        yield _problem(
            "torch",
            f"{where} has torch {report.torch}, and elasticd supports 2.9 and later",
            "pip install --upgrade torch",
        )
        return
    backends = [name for name in ("gloo", "nccl") if getattr(report, name)]
    built = f" for CUDA or ROCm {report.cuda}" if report.cuda else " for CPUs"
    yield Finding(
        subject="torch",
        verdict=Verdict.OK,
        found=f"torch {report.torch}{built} in {where}, imported in {seconds(report.import_s)}, "
        f"with {' and '.join(backends) or 'no backend'}",
    )
    if not report.gloo:
        yield _problem(
            "torch",
            "this torch was built without Gloo, which elasticd uses on every machine",
            "Install a build with it: those of pip have it.",
        )
    yield from _of_gpus(report, gpus)


def _of_gpus(report: TorchReport, gpus: int) -> Iterator[Finding]:
    if not gpus and not report.gpus:
        return
    if report.gpus < gpus:
        yield _problem(
            "GPUs",
            f"this machine shows {counted(gpus, 'GPU')}, and torch can use "
            f"{report.gpus or 'none'} of them",
            "Install the torch that was built for this driver (https://pytorch.org), and "
            "look at what nvidia-smi or rocm-smi says."
            if report.cuda
            else "Install a torch that was built for GPUs: this one is for CPUs.",
        )
    elif not report.nccl:
        yield _problem(
            "GPUs",
            "this torch was built without NCCL",
            "Install a build with it: those of pip for Linux have it.",
        )
    else:
        yield Finding(
            subject="GPUs", verdict=Verdict.OK, found=f"torch can use {counted(report.gpus, 'GPU')}"
        )


def last_line(text: str) -> str:
    """Return the last line that is not empty; in a traceback this is the error."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no word")


def _problem(subject: str, found: str, advice: str) -> Finding:
    return Finding(subject=subject, verdict=Verdict.PROBLEM, found=found, advice=advice)


def _broken(found: str) -> Finding:
    return _problem(
        "torch",
        found,
        "Call it by hand, and mend what it says; --python names another interpreter.",
    )


def _numbers(version: str) -> tuple[int, int]:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)

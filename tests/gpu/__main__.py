"""Everything that one card can show: `make gpu`. Leaves a report that can go to docs/gpu.md.

Each file is run by a process of its own: a context that a test has spoilt is nobody else's. The
report is written after each, so one that does not end takes no other's with it.

`python -m tests.gpu [REPORT [FILE...]]` runs some of the files.
"""

import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from tests.gpu.card import FIGURES_VARIABLE, describe

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT_S = 300.0


def main() -> int:
    if not torch.cuda.is_available():
        sys.stderr.write(
            f"make gpu needs one GPU, and torch {torch.__version__} finds none here: run it on a "
            "machine with a card, a driver and a torch that is built for it.\n"
        )
        return 1
    report = Path(sys.argv[1] if len(sys.argv) > 1 else "gpu-report.md")
    chosen = sys.argv[2:] or sorted(each.name for each in HERE.glob("test_*.py"))
    rows: list[str] = []
    log: list[str] = []
    has_failed = False
    with tempfile.TemporaryDirectory(prefix="elasticd-gpu-") as folder:
        figures = Path(folder) / "figures"
        figures.touch()
        for name in chosen:
            code, text = _run(HERE / name, figures)
            has_failed |= code != 0
            last = text.strip().splitlines()[-1] if text.strip() else "nothing was said"
            rows.append(f"| `{name}` | {_verdict(code)} | {last.strip('= ')} |")
            log.append(f"$ pytest tests/gpu/{name}\n{text}")
            sys.stdout.write(f"{rows[-1]}\n")
            lines = [json.loads(line) for line in figures.read_text().splitlines()]
            found = [f"| {each['name']} | {each['value']:.4g} {each['unit']} |" for each in lines]
            report.write_text(_page(rows, found, log))
    sys.stdout.write(f"{report} can go to docs/gpu.md\n")
    return 1 if has_failed else 0


def _run(file: Path, figures: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    env = {**os.environ, FIGURES_VARIABLE: str(figures)}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as exc:
        said = (exc.stdout or b"").decode(errors="replace")
        return 124, f"{said}\nit took more than {LIMIT_S:.0f} s"
    return done.returncode, re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)


def _verdict(code: int) -> str:
    return "passed" if code == 0 else f"FAILED ({code})"


def _page(rows: list[str], figures: list[str], log: list[str]) -> str:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    facts = "\n".join(f"- {name}: {value}" for name, value in describe().items())
    return (
        f"## {today}\n\n{facts}\n\n"
        + "\n".join(["| file | | |", "|---|---|---|", *rows])
        + "\n\n"
        + "\n".join(["| figure | |", "|---|---|", *figures])
        + "\n\n```text\n"
        + "\n".join(log)
        + "\n```\n"
    )


if __name__ == "__main__":
    sys.exit(main())

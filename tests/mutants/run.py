"""Break one rule at a time and see its test go red: `python -m tests.mutants.run [NAME ...]`.

Each patch beside this file says in its first lines which rule it breaks and which test must fail.
It is applied to a copy of the sources; a test that stays green cannot fail, which is a defect.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Mutant", "mutants"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COPIED = ("elasticd", "agent", "chaos", "tests", "pyproject.toml")
LIMIT_S = 300.0
_TEST_FAILED = 1
"""pytest's exit code for failed tests; others mean that it could not run them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    name: str
    rule: str
    test: str
    patch: Path


def mutants() -> list[Mutant]:
    """All kept patches, in the order of their names."""
    found = []
    for patch in sorted(HERE.glob("*.patch")):
        head = re.match(r"# (?P<rule>.+)\n# Red: (?P<test>\S+)\n", patch.read_text())
        if head is None:
            raise SystemExit(f"{patch} does not begin with '# RULE' and '# Red: TEST'.")
        found.append(Mutant(name=patch.stem, rule=head["rule"], test=head["test"], patch=patch))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only patches whose name begins so")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    chosen = [m for m in mutants() if not args.names or m.name.startswith(tuple(args.names))]
    with ThreadPoolExecutor(args.jobs) as pool:
        verdicts = list(pool.map(_try, chosen))
    for mutant, verdict in zip(chosen, verdicts, strict=True):
        print(f"{verdict or 'killed':<60.60} {mutant.name:<24} {mutant.rule}")
    survivors = [verdict for verdict in verdicts if verdict]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed")
    return 1 if survivors or not chosen else 0


def _try(mutant: Mutant) -> str:
    """Why the mutant counts as alive; empty if its test killed it."""
    with tempfile.TemporaryDirectory(prefix="elasticd-mutant-") as folder:
        for name in COPIED:
            source, target = ROOT / name, Path(folder) / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, target)
        applied = _run(["git", "apply", str(mutant.patch)], folder)
        if applied.returncode != 0:
            return f"DOES NOT APPLY: {applied.stderr.strip().splitlines()[-1]}"
        test = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.test]
        try:
            done = _run(test, folder)
        except subprocess.TimeoutExpired:
            return f"TEST HANGS: {mutant.test}"
        if done.returncode == 0:
            return f"SURVIVES: {mutant.test}"
        if done.returncode != _TEST_FAILED:
            return f"TEST DOES NOT RUN: {done.stdout.strip().splitlines()[-1]}"
        return ""


def _run(command: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    # Before the checkout itself, which is installed where this runs.
    paths = os.pathsep.join((folder, str(Path(folder) / "agent")))
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())

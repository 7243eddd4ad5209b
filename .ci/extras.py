"""Fail if pip cannot find a set of versions for an extra of pyproject.toml.

A library that bounds its own requirements anew can leave pip to try hundreds of versions, for hours
and in vain, where the constraints file knows a set that works. So each extra is resolved as a user
would have it: in an environment with the pinned torch alone, without the constraints, once with the
pip that Python brings and once with the newest. Nothing but torch and pip is installed, nor is the
project built: pip gets its requirements.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROMISED_S = 60.0
"""What a search takes at most on a quiet machine with a near registry; longer ones are named."""
LIMIT_S = 300.0
"""Only ends a search without an end, which takes hours: how far the registry is decides nothing."""
AT_ONCE = 2
"""How many searches run at a time: nothing is installed meanwhile. Each waits for the registry much
of its time, and .ci/run has `make check` beside them, nicely."""


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    wanted = {extra: project["dependencies"] + optional[extra] for extra in optional}
    together = [line for extra in optional if extra != "bench" for line in optional[extra]]
    wanted["all but bench"] = project["dependencies"] + together
    found = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit("constraints.txt has no line 'torch==...': pin it there.")
    failed = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # Leaves no folder.
    with tempfile.TemporaryDirectory(prefix="elasticd-extras-") as folder:
        os.environ["TMPDIR"] = folder  # A pip that is ended leaves what it has fetched.
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        _pip(python, "install", "--no-compile", found[0])  # Nothing of it is run.
        for is_newest in (False, True):
            if is_newest:
                _pip(python, "install", "--upgrade", "pip")
            version = _pip(python, "--version").split()[1]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                found_all = list(pool.map(partial(_fits, python), wanted, wanted.values()))
            failed += [
                f"{extra} (pip {version})"
                for extra, is_found in zip(wanted, found_all, strict=True)
                if not is_found
            ]
    for name in failed:
        sys.stderr.write(f"pip finds no set of versions: {name}\n")
    sys.stdout.write(f"{2 * len(wanted)} resolutions, {len(failed)} failed\n")
    return 1 if failed else 0


def _fits(python: str, extra: str, requirements: list[str]) -> bool:
    began_s = time.monotonic()
    try:
        _pip(python, "install", "--dry-run", *requirements)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as exc:
        sys.stderr.write(f"{extra}: {exc}\n{(exc.stderr or b'')[-2000:]!r}\n")
        return False
    took_s = time.monotonic() - began_s
    late = "" if took_s <= PROMISED_S else ", more than the minute that is promised"
    sys.stdout.write(f"{extra}: {took_s:.0f} s{late}\n")
    return True


def _pip(python: str, *args: str) -> str:
    command = [python, "-m", "pip", "--disable-pip-version-check", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())

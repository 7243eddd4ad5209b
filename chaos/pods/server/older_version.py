"""The version before, which the agents are rolled to and back from.

It is not another image: the tree comes out of git into the folder that all agents have, and stands
before the image's own in the PYTHONPATH of the agents' container. So a cluster needs no second
image, and what is compared is elasticd alone.
"""

import shutil
import subprocess
from pathlib import Path

from chaos.error import ChaosError

__all__ = ["python_path", "unpack"]

ROOT = Path(__file__).parents[3]
PARTS = ("elasticd", "agent")


def unpack(commit: str, folder: Path) -> None:
    """Write the tree of a commit into a folder, readable by everybody, unless it is there.

    Raises:
        ChaosError: git has no such commit.
    """
    if folder.exists():
        return
    words = ["git", "-C", str(ROOT), "archive", commit, *PARTS]
    made = subprocess.run(words, capture_output=True, check=False)
    if made.returncode != 0:
        raise ChaosError(
            f"The version before ({commit[:12]}) cannot be taken out of git: "
            f"{made.stderr.decode(errors='replace').strip()}. The scenario needs the repository "
            "with all of its commits."
        )
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    # Not by tarfile: the first releases of Python 3.11 have none of its filters.
    subprocess.run(["tar", "-x", "-C", str(partial)], input=made.stdout, check=True)
    # Whatever our umask is, or git's: the agents' user is not ours.
    for path in (partial, *partial.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else path.stat().st_mode | 0o444)
    partial.rename(folder)


def python_path(folder: Path) -> str:
    """Return where a Python finds what was unpacked into a folder, as the agents see it."""
    return f"{folder}:{folder / 'agent'}"

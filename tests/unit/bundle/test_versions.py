"""Versions are told without importing what they are of."""

import subprocess
import sys

import elasticd
from elasticd.bundle.versions import versions

SCRIPT = """
import sys
from elasticd.bundle.versions import versions
versions()
print({"torch", "fsspec"} & set(sys.modules))
"""


def test_versions_of_what_a_cause_may_lie_in_are_told() -> None:
    """Torch's are those of its own file: what it was built for."""
    found = versions()
    assert found["elasticd"] == elasticd.__version__
    assert found["python"].startswith(".".join(map(str, sys.version_info[:3])))
    assert found["fsspec"]
    assert found["torch"].partition("+")[0] and "torch cuda" in found


def test_torch_is_not_imported() -> None:
    """An agent answers with them, and has no second and no 300 MB for it."""
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "set()"

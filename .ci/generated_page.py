"""Writes a page of the documentation that a script makes from the code, or compares it."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_or_check(page: Path, text: str) -> int:
    """Write the page, or with --check say whether it is what the code says; return an exit code."""
    if "--check" not in sys.argv[1:]:
        page.write_text(text)
        return 0
    if page.exists() and page.read_text() == text:
        return 0
    name = page.relative_to(ROOT)
    sys.stderr.write(f"{name} is not what the code says: run `make picture`.\n")
    return 1

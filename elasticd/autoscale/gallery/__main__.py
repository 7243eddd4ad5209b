"""Draws the pictures of the guide: `python -m elasticd.autoscale.gallery FOLDER`."""

import sys
from pathlib import Path

from elasticd.autoscale.gallery.scene import SCENES

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Write one SVG for each scene."""
    if len(argv) != 1:
        print("usage: python -m elasticd.autoscale.gallery FOLDER", file=sys.stderr)  # noqa: T201
        return 2
    folder = Path(argv[0])
    folder.mkdir(parents=True, exist_ok=True)
    for scene in SCENES:
        (folder / f"{scene.name}.svg").write_text(scene.picture())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The backups of etcd: which of them stay on their volume."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.fixtures.manifests import built, pods


def test_old_snapshots_are_removed_and_the_newest_stay(tmp_path: Path) -> None:
    """By the program in the manifest."""
    backup = dict(pods(built("overlays/tls-etcd")))["elasticd-etcd-backup"]
    program = backup["containers"][0]["command"][-1].replace('"/backup"', repr(str(tmp_path)))
    for number in range(50):
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        (folder / "snapshot.db").write_text("x")
        os.utime(folder / "snapshot.db", (number, number))
    (tmp_path / "run-50").mkdir()  # A snapshot that was never finished is not counted.
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    left = {folder.name for folder in tmp_path.iterdir()}
    assert left == {f"run-{number}" for number in range(2, 51)}


def test_the_next_snapshot_has_room_and_what_was_left_of_old_ones_goes(tmp_path: Path) -> None:
    """With a volume that is full nothing is saved, so nothing would ever be removed again."""
    backup = dict(pods(built("overlays/tls-etcd")))["elasticd-etcd-backup"]
    program = backup["containers"][0]["command"][-1].replace('"/backup"', repr(str(tmp_path)))
    for number in range(5):
        folder = tmp_path / f"elasticd-etcd-backup-{number}"
        folder.mkdir()
        (folder / "snapshot.db").write_bytes(bytes(100))
        os.utime(folder / "snapshot.db", (number, number))
    for name, age_s in (("left", 7200), ("begun", 0)):  # It was killed; somebody saves by hand.
        folder = tmp_path / f"elasticd-etcd-backup-{name}"
        folder.mkdir()
        (folder / "snapshot.db.part").write_bytes(bytes(100))
        os.utime(folder, (time.time() - age_s,) * 2)
    (tmp_path / "lost+found").mkdir()
    os.utime(tmp_path / "lost+found", (0, 0))
    room = (
        "import pathlib, shutil, types\n"
        f"held = lambda: len(list(pathlib.Path({str(tmp_path)!r}).glob('*/snapshot.db')))\n"
        "shutil.disk_usage = lambda _: types.SimpleNamespace(free=400 - 100 * held())\n"
    )
    subprocess.run([sys.executable, "-c", room + program], check=True, capture_output=True)
    names = {folder.name.removeprefix("elasticd-etcd-backup-") for folder in tmp_path.iterdir()}
    assert names == {"3", "4", "begun", "lost+found"}

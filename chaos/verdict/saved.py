"""What a run left in storage: every checkpoint that counts, read to the last byte."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chaos.verdict.finding import Finding, finding_of
from elasticd.checkpoint.commit.committer import read_manifest
from elasticd.checkpoint.commit.fetch import verify
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.format.entry import LogEntry
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.storage.location import open_bucket

__all__ = ["SAVED_FILE", "SAVED_FOLDER", "examine", "judged"]

SAVED_FOLDER = "saved"
SAVED_FILE = "saved.json"


def examine(folder: Path) -> None:
    """Read all checkpoints of a run, and write down what was found."""
    place = folder / SAVED_FOLDER
    if not place.exists():
        return
    bucket = open_bucket(f"file://{place}", {}, {})
    log = CommitLog(bucket)
    newest = log.newest_number()
    unreadable = [number for number in range(1, newest + 1) if not _can_read(log, number)]
    with ThreadPoolExecutor(4) as pool:
        found = []
        for entry in log.checkpoints():
            try:
                wrong = verify(bucket, read_manifest(bucket, entry), pool)
            except Damaged as exc:
                wrong = [str(exc)]
            found.append({"number": entry.number, "step": entry.snapshot.step, "wrong": wrong})
    said = {"entries": newest, "unreadable": unreadable, "checkpoints": found}
    (folder / SAVED_FILE).write_text(json.dumps(said))


def judged(folder: Path) -> tuple[Finding, ...]:
    """Say what `examine` found; nothing for a run without checkpoints."""
    path = folder / SAVED_FILE
    if not path.exists():
        return ()
    said = json.loads(path.read_text())
    found = said["checkpoints"]
    wrong = [f"entry {number} of the log cannot be read" for number in said["unreadable"]]
    wrong += [f"checkpoint {each['number']}: {why}" for each in found for why in each["wrong"]]
    steps = [each["step"] for each in found]
    wrong += [
        f"step {later} was committed before step {earlier}"
        for later, earlier in zip(steps[1:], steps, strict=False)
        if later >= earlier
    ]
    if not found:
        wrong.append("nothing was saved at all")
    claim = "every checkpoint that counts is whole, and a later one is of a later step"
    return (finding_of("I2, I3", claim, said["entries"], wrong),)


def _can_read(log: CommitLog, number: int) -> LogEntry | None:
    try:
        return log.entry(number)
    except Damaged:
        return None

"""Event files, read back by the package that reads them for people."""

import math
from pathlib import Path

from elasticd.tensorboard.event import Histogram, event, first_event, restart_event, tag
from elasticd.tensorboard.tfrecord import crc32c
from tests.fixtures.event_reader import shown


def write(folder: Path, name: str, *records: bytes) -> None:
    (folder / f"events.out.tfevents.{name}").write_bytes(b"".join((first_event(1.0), *records)))


def test_checksum_is_that_of_the_standard() -> None:
    """The check value of CRC-32C, and of nothing."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


def test_scalars_are_read_back(tmp_path: Path) -> None:
    """Numbers that are not finite or too large for the format too, and names of all kinds."""
    names = ("loss", "größe", "a/b c", "", "\ud800", "x" * 500)
    tags = [tag(name) for name in names]
    records = [event(1.0 + step, step, [(tags[0], 1.0 / step)]) for step in (1, 2, 3)]
    records.append(event(5.0, 4, [(tags[0], math.nan), *((each, 1e300) for each in tags[1:])]))
    write(tmp_path, "1", *records)
    found = shown(tmp_path)["."]
    assert [step for step, _ in found["loss"]] == [1, 2, 3, 4]
    assert math.isnan(found["loss"][-1][1])
    assert found["größe"] == found["a/b c"] == found["?"] == found["x" * 500] == [(4, math.inf)]


def test_what_is_void_after_a_restart_is_not_shown(tmp_path: Path) -> None:
    """TensorBoard takes the first restart for the beginning: so there must be one."""
    for number in range(3):
        begin = 10 * number
        records = [
            event(1.0, step, [(tag("loss"), float(number))]) for step in range(begin, begin + 15)
        ]
        write(tmp_path, f"{number:010d}", restart_event(float(number), begin), *records)
    steps = shown(tmp_path)["."]["loss"]
    assert [step for step, _ in steps] == list(range(35))
    assert [value for _, value in steps] == [0.0] * 10 + [1.0] * 10 + [2.0] * 15


def test_histogram_is_read_back(tmp_path: Path) -> None:
    """With its limits and counts."""
    made = Histogram(
        least=0.0,
        greatest=2.0,
        count=3.0,
        total=3.0,
        total_of_squares=5.0,
        limits=(1.0, 2.0),
        counts=(1.0, 2.0),
    )
    write(tmp_path, "1", event(1.0, 7, [(tag("w"), made)]))
    ((step, rows),) = shown(tmp_path)["."]["w"]
    assert step == 7
    assert rows.tolist() == [[0.0, 1.0, 1.0], [1.0, 2.0, 2.0]]

"""Event files, read back by the package that reads them for people."""

import math
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from elasticd.tensorboard.event import Histogram, first_event, restart_event, scalar_event
from elasticd.tensorboard.record import crc32c


def _read(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})
    accumulator.Reload()
    return accumulator


def test_checksum_is_that_of_the_standard() -> None:
    """The check value of CRC-32C, and of nothing."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


def test_scalars_are_read_back(tmp_path: Path) -> None:
    """Numbers that are not finite too."""
    records = [first_event(1.0)]
    records += [scalar_event(1.0 + step, step, {"loss": 1.0 / step}) for step in (1, 2, 3)]
    records.append(scalar_event(5.0, 4, {"loss": math.nan, "größe": 1e300}))
    (tmp_path / "events.out.tfevents.1.host").write_bytes(b"".join(records))
    found = _read(tmp_path)
    assert sorted(found.Tags()["scalars"]) == ["größe", "loss"]
    assert [each.step for each in found.Scalars("loss")] == [1, 2, 3, 4]
    assert math.isnan(found.Scalars("loss")[-1].value)
    assert found.Scalars("größe")[0].value == math.inf


def test_after_a_restart_each_step_shows_once(tmp_path: Path) -> None:
    """Files are read in the order of their names; what was done again counts."""
    for number in range(3):
        begin = 10 * number
        records = [first_event(float(number))]
        if number:
            records.append(restart_event(float(number), begin))
        records += [scalar_event(1.0, step, {"loss": number}) for step in range(begin, begin + 15)]
        (tmp_path / f"events.out.tfevents.{number:010d}.host").write_bytes(b"".join(records))
    scalars = _read(tmp_path).Scalars("loss")
    assert [each.step for each in scalars] == list(range(35))
    assert [each.value for each in scalars] == [0.0] * 10 + [1.0] * 10 + [2.0] * 15


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
    records = [first_event(1.0), scalar_event(1.0, 7, {}, {"w": made})]
    (tmp_path / "events.out.tfevents.1.host").write_bytes(b"".join(records))
    (found,) = _read(tmp_path).Histograms("w")
    assert found.step == 7
    assert found.histogram_value.bucket_limit == [1.0, 2.0]
    assert found.histogram_value.bucket == [1.0, 2.0]

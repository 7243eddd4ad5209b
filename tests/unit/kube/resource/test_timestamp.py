"""Times of the API, against the library that the pure parts may not use."""

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from elasticd.kube.resource.timestamp import timestamp, unix_s


def test_times_are_those_of_the_calendar() -> None:
    draw = random.Random(7)
    for _ in range(2000):
        at_s = draw.randrange(0, 7_000_000_000)
        expected = datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert timestamp(at_s) == expected
        assert unix_s(expected) == at_s


@pytest.mark.parametrize("text", ["2024-02-29T23:59:59Z", "2000-02-29T00:00:00Z"])
def test_leap_days_are_there(text: str) -> None:
    found = unix_s(text)
    assert found is not None and timestamp(found) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00.5Z", 0.5),
        ("1970-01-01T02:00:00+02:00", 0.0),
        ("1969-12-31T23:30:00-00:30", 0.0),
    ],
)
def test_zones_and_parts_of_seconds_are_read(text: str, expected: Any) -> None:
    assert unix_s(text) == expected


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01T00:00:00Z", "2026-11-23", "2026-11-23T25:00:00Z"]
)
def test_what_is_no_time_is_none(text: str) -> None:
    assert unix_s(text) is None

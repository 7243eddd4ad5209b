"""The events of TensorBoard's format that a job's numbers need. Pure.

Field numbers are those of `Event`, `Summary`, `HistogramProto` and `SessionLog`, as TensorBoard's
documentation of its data format gives them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.tensorboard.protobuf import double, field_bytes, float32, varint_field
from elasticd.tensorboard.tfrecord import framed

__all__ = ["Histogram", "event", "first_event", "restart_event", "tag"]

VERSION = b"brain.Event:2"
"""The version of the format, in which a restart record voids the steps from its own step on."""
_START = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """The number of values up to each limit and above the limit before."""

    least: float
    greatest: float
    count: float
    total: float
    total_of_squares: float
    limits: Sequence[float]
    """The upper limits, ascending."""
    counts: Sequence[float]
    """The number of values in each bucket; there are as many as `limits`."""


def first_event(at_unix_s: float) -> bytes:
    """Return the record with which each file begins."""
    return framed(double(1, at_unix_s) + field_bytes(3, VERSION))


def restart_event(at_unix_s: float, step: int) -> bytes:
    """Return a record that voids all earlier records of steps from `step` on."""
    start = varint_field(1, _START)
    return framed(double(1, at_unix_s) + varint_field(2, step) + field_bytes(7, start))


def event(at_unix_s: float, step: int, values: Sequence[tuple[bytes, float | Histogram]]) -> bytes:
    """Return the record of one step; a tag is a result of `tag`.

    A number that is not finite is not changed.
    """
    return framed(
        double(1, at_unix_s)
        + varint_field(2, step)
        + field_bytes(5, b"".join(field_bytes(1, name + _value(value)) for name, value in values))
    )


def tag(name: str) -> bytes:
    """Return a name in the form for `event`; invalid Unicode becomes a question mark."""
    return field_bytes(1, name.encode("utf-8", "replace"))


def _value(value: float | Histogram) -> bytes:
    return field_bytes(5, _packed(value)) if isinstance(value, Histogram) else float32(2, value)


def _packed(histogram: Histogram) -> bytes:
    plain = (
        histogram.least,
        histogram.greatest,
        histogram.count,
        histogram.total,
        histogram.total_of_squares,
    )
    packed = b"".join(double(number, value) for number, value in enumerate(plain, 1))
    for number, values in ((6, histogram.limits), (7, histogram.counts)):
        packed += b"".join(double(number, value) for value in values)
    return packed

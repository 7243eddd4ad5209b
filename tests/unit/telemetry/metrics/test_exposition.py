"""Samples as text: exactly what Prometheus reads, whatever a job or a script calls things."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from elasticd.telemetry.metrics.catalog import CATALOG, by_name
from elasticd.telemetry.metrics.exposition import (
    LABEL_LIMIT,
    Histogram,
    Sample,
    exposition,
    parsed,
)

SCALAR, STEP = by_name("elasticd_scalar"), by_name("elasticd_step")
REQUESTS = by_name("elasticd_etcd_request_seconds")


def text_of(*samples: Sample) -> str:
    return exposition(samples).decode()


def test_text_is_the_one_of_the_format() -> None:
    """Help, type, and one line a series, in the order of the list."""
    text = text_of(
        Sample(SCALAR, ("j", "loss"), 0.25),
        Sample(by_name("elasticd_slots"), (), 2),
        Sample(SCALAR, ("j", "lr"), 1e-05),
    )
    assert text == (
        "# HELP elasticd_slots Workers that this node can hold at once.\n"
        "# TYPE elasticd_slots gauge\n"
        "elasticd_slots 2\n"
        f"# HELP elasticd_scalar {SCALAR.help}\n"
        "# TYPE elasticd_scalar gauge\n"
        'elasticd_scalar{job_name="j",name="loss"} 0.25\n'
        'elasticd_scalar{job_name="j",name="lr"} 1e-05\n'
    )


def test_numbers_that_are_none_are_written_as_prometheus_reads_them() -> None:
    """A loss that is NaN is exported as NaN: a gap would look like a script that says nothing."""
    values = {"a": math.nan, "b": math.inf, "c": -math.inf}
    text = text_of(*(Sample(SCALAR, ("j", name), value) for name, value in values.items()))
    lines = [line.rpartition(" ")[2] for line in text.splitlines() if not line.startswith("#")]
    assert lines == ["NaN", "+Inf", "-Inf"]


def test_large_counts_and_small_times_keep_their_digits() -> None:
    """Bytes of a year, microseconds: what is read is what was counted."""
    for value in (2.0**53, 123456789012345678.0, 1e300, 1.000000000000001, 5e-324, -0.5):
        (line,) = [e for e in text_of(Sample(STEP, ("j",), value)).splitlines() if e[0] != "#"]
        assert float(line.rpartition(" ")[2]) == value


def test_names_that_are_the_same_when_cut_are_one_series() -> None:
    """Prometheus takes one value of each series, and says that the others are wrong."""
    long, odd = "n" * LABEL_LIMIT, "loss\ud800"
    names = (f"{long}1", f"{long}2", odd, "loss?")
    text = text_of(*(Sample(SCALAR, ("j", name), 1.0) for name in names))
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines)) == 2


def test_histogram_is_cumulated_and_ends_with_all() -> None:
    """Each bucket counts those below it, the last one without a bound."""
    text = text_of(Sample(REQUESTS, (), Histogram((3, 0, 2, 0, 0, 1), 4.5)))
    name = REQUESTS.name
    assert f'{name}_bucket{{le="0.005"}} 3\n' in text
    assert f'{name}_bucket{{le="0.1"}} 5\n' in text
    assert f'{name}_bucket{{le="+Inf"}} 6\n{name}_sum 4.5\n{name}_count 6\n' in text


def test_same_series_twice_is_written_once() -> None:
    """Prometheus drops a whole scrape for one that is there twice."""
    text = text_of(Sample(STEP, ("j",), 1), Sample(STEP, ("j",), 2))
    assert text.count("elasticd_step{") == 1 and text.endswith(" 2\n")


@given(st.text(), st.text(), st.floats())
def test_whatever_a_script_calls_its_numbers_is_read_back(
    job: str, name: str, value: float
) -> None:
    """By Prometheus' own parser and by ours; what is too long is cut."""
    text = text_of(Sample(SCALAR, (job, name), value))
    (family,) = text_string_to_metric_families(text)
    (sample,) = family.samples
    wanted = [part[:LABEL_LIMIT].encode("utf-8", "replace").decode() for part in (job, name)]
    assert [sample.labels["job_name"], sample.labels["name"]] == wanted
    assert sample.value == value or math.isnan(value)
    ((read, labels, found),) = parsed(text)
    assert (read, list(labels)) == (SCALAR.name, wanted)
    assert found == value or math.isnan(value)


def test_name_that_is_too_long_is_cut() -> None:
    """A script that commits under the text of an error must not fill Prometheus."""
    ((_, labels, _),) = parsed(text_of(Sample(SCALAR, ("j", "x" * 100_000), 1)))
    assert labels == ("j", "x" * LABEL_LIMIT)


def test_file_of_another_version_is_read_as_far_as_it_is_understood() -> None:
    """Half a line, a comment, a name that is new: the others count."""
    text = 'x{a="1"} 2 3\n# TYPE y gauge\nz{b="\\\\"} nonsense\nok{c="d"} 4\nok_too 5'
    assert list(parsed(text)) == [("ok", ("d",), 4.0), ("ok_too", (), 5.0)]


def test_every_metric_can_be_written() -> None:
    """With values for all of its labels, and read by Prometheus' own parser."""
    samples = [
        Sample(
            metric,
            tuple(f"v{number}" for number in range(len(metric.labels))),
            Histogram((1,) * (len(metric.bounds) + 1), 1.5) if metric.bounds else 1.5,
        )
        for metric in CATALOG
    ]
    families = {f.name: f for f in text_string_to_metric_families(text_of(*samples))}
    assert len(families) == len(CATALOG)
    for metric in CATALOG:
        assert families[metric.name.removesuffix("_total")].type == metric.kind

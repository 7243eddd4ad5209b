"""The one list of metrics: what Prometheus' conventions and ours ask of it."""

import re

import pytest

from elasticd.goodput.cause import TimeCause
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.reason import Cause, Phase, Reason
from elasticd.telemetry.metrics.catalog import CATALOG, by_name
from elasticd.telemetry.metrics.label import CHANGE_REASONS
from elasticd.telemetry.metrics.metric import Exporter, Metric, MetricType, MetricUnit

OPEN = {"job_name", "name", "version"}
"""Labels without a closed list: the job, what its script calls its numbers, what runs."""


@pytest.mark.parametrize("metric", CATALOG, ids=lambda metric: metric.name)
def test_name_says_unit_and_kind(metric: Metric) -> None:
    """As Prometheus' naming has it: prefix, noun, base unit, `_total` for counters alone."""
    assert re.fullmatch(r"(elasticd|process)_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricType.COUNTER)
    has_unit = f"_{metric.unit}" in metric.name
    assert metric.unit is MetricUnit.NONE or has_unit
    assert ("_seconds" in metric.name) == (metric.unit is MetricUnit.SECONDS)
    assert bool(metric.bounds) == (metric.kind is MetricType.HISTOGRAM)
    assert metric.help.endswith(".") and not metric.help.endswith("..")


@pytest.mark.parametrize("metric", CATALOG, ids=lambda metric: metric.name)
def test_labels_are_the_job_and_closed_lists(metric: Metric) -> None:
    """A rank, a pod, a node or a generation would make new series at every change of world."""
    names = [label.name for label in metric.labels]
    assert len(set(names)) == len(names)
    for label in metric.labels:
        assert label.values or label.name in OPEN
    is_of_process = metric.exporter in (
        Exporter.AGENT,
        Exporter.AUTOSCALER,
        Exporter.OPERATOR,
    )
    is_of_job = not is_of_process or metric.name == "elasticd_job_slots"
    assert (names[:1] == ["job_name"]) == is_of_job
    assert not {"job", "instance", "le"} & set(names)  # They are Prometheus' own.


def test_no_name_is_there_twice() -> None:
    """The last one would hide the first."""
    assert len({metric.name for metric in CATALOG}) == len(CATALOG)
    assert by_name("elasticd_slots").kind is MetricType.GAUGE


def test_every_word_of_the_closed_lists_is_a_label() -> None:
    """A reason that is added begins at 0 too; what only ends a job begins no world."""
    words = {m.name: m.labels[1].values for m in CATALOG if m.labels[1:]}
    (why,) = by_name("elasticd_autoscaler_held_total").labels
    assert why.values == tuple(word.value for word in HoldReason)
    assert set(CHANGE_REASONS) < {reason.value for reason in Reason}
    assert words["elasticd_changes_total"] == CHANGE_REASONS
    assert words["elasticd_restart_budget"] == tuple(cause.value for cause in Cause)
    assert words["elasticd_slot_seconds_total"] == tuple(cause.value for cause in TimeCause)
    assert words["elasticd_job_phase"] == tuple(phase.value for phase in Phase)


@pytest.mark.parametrize(
    "reason",
    [r for r in Reason if r.cause is not None or r in (Reason.FIRST_WORLD, Reason.OTHER)],
)
def test_whatever_the_budget_pays_for_is_a_reason_of_a_change(reason: Reason) -> None:
    """None of them may be counted as `other`."""
    assert reason.value in CHANGE_REASONS

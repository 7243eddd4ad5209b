"""What a query means where there is no Prometheus, and what it is told where it means nothing."""

import pytest

from elasticd.autoscale.direct.query_metric import wanted
from elasticd.autoscale.metrics_source import Query
from elasticd.errors import CallError
from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.metric import Exporter, MetricType


def query(text: str, name: str = "m") -> Query:
    return Query(job="j", name=name, text=text)


@pytest.mark.parametrize(
    ("text", "name", "labels"),
    [
        ("elasticd_steps_total", "elasticd_steps_total", {"job_name": "j"}),
        (" elasticd_workers {} ", "elasticd_workers", {"job_name": "j"}),
        ("elasticd_slots_used", "elasticd_slots_used", {}),
        (
            'elasticd_scalar{name="lag", job_name="other",}',
            "elasticd_scalar",
            {"name": "lag", "job_name": "other"},
        ),
        ("elasticd_scalar{name='lag'}", "elasticd_scalar", {"name": "lag", "job_name": "j"}),
        ("elasticd_changes_total{reason=`joined`}", "elasticd_changes_total", None),
    ],
)
def test_plain_name_is_the_metric_of_this_job(
    text: str, name: str, labels: dict[str, str] | None
) -> None:
    """Unless it names another job; a metric of nodes has none."""
    found = wanted(query(text))
    assert found.metric.name == name
    assert labels is None or found.labels == labels


def test_name_of_the_metric_counts_where_the_query_is_promql() -> None:
    """So one policy is right with a Prometheus and without."""
    promql = 'sum(rate(elasticd_samples_total{job_name="j"}[1m]))'
    found = wanted(query(promql, "elasticd_samples_total"))
    assert (found.metric.name, found.labels) == ("elasticd_samples_total", {"job_name": "j"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sum(elasticd_workers)", "is PromQL, and without a Prometheus only metrics of the agents"),
        ("rate(elasticd_steps_total[1m])", "is PromQL"),
        ("elasticd_workers > 3", "is PromQL"),
        ('elasticd_scalar{name=~"l.*"}', "compares labels by more than `=`"),
        ('elasticd_scalar{name!="l"}', "compares labels by more than `=`"),
        ("elasticd_step_total", "is no metric of the agents .* Is elasticd_steps_total meant"),
        ("queue_length", "is no metric of the agents"),
        ("elasticd_scalar", 'has a series for each name: name one, as elasticd_scalar{name="..."}'),
        ("elasticd_slot_seconds_total", "has a series for each cause"),
        ('elasticd_workers{rank="0"}', "has no label rank: it has job_name"),
        ('elasticd_slots{job_name="j"}', "has no label job_name: it has none"),
        ("elasticd_etcd_request_seconds", "is a histogram"),
        ("elasticd_lease_margin_seconds", "is of each node by itself"),
        ("elasticd_output_free_bytes", "is of each node by itself"),
        ("elasticd_checkpoint_durable_step", "is of each node by itself"),
        ("elasticd_autoscaler_leader", "of the autoscaler itself"),
        ("", "is PromQL"),
    ],
)
def test_what_means_no_number_is_refused_in_a_sentence(text: str, says: str) -> None:
    """At once, and with what to do."""
    with pytest.raises(CallError, match=says):
        wanted(query(text))


def test_every_metric_is_a_sum_one_nodes_or_refused() -> None:
    """None that is added later is summed by chance: counters and counts of nodes alone are."""
    sums = set()
    for metric in CATALOG:
        labels = ",".join(f'{label.name}="x"' for label in metric.labels)
        try:
            found = wanted(query(f"{metric.name}{{{labels}}}"))
        except CallError:
            continue
        assert found.is_rate == (metric.kind is MetricType.COUNTER)
        assert found.is_sum != (metric.exporter is Exporter.RANK_0)
        if found.is_sum and not found.is_rate:
            sums.add(metric.name)
    assert sums == {
        "elasticd_build_info",
        "elasticd_slots",
        "elasticd_slots_used",
        "elasticd_job_slots",
        "elasticd_node_draining",
        "elasticd_etcd_refused_writes",
        "elasticd_tensorboard_unwritten_steps",
        "process_open_fds",
    }

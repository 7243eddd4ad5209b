"""What a policy's query becomes for one job."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.autoscale.rules.query import (
    filled,
    is_closed,
    reach_s,
    unquoted,
    variables,
    window_text,
)
from tests.fixtures.prometheus import promtool


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('sum(rate(x{elasticd_job="$job"}[$window]))', 'sum(rate(x{elasticd_job="a.b"}[1m30s]))'),
        ("x{elasticd_job='${job}'}[${window}]", "x{elasticd_job='a.b'}[1m30s]"),
        ("x{elasticd_job=`$job`}", "x{elasticd_job=`a.b`}"),
        ('x{pod=~"$job-.*", y="$job"}', 'x{pod=~"a\\\\.b-.*", y="a.b"}'),
        ("x{pod!~ `$job-.*`}", "x{pod!~ `a\\.b-.*`}"),
        ('x{y="$jobs"}', 'x{y="$jobs"}'),
        (
            'label_replace(x{j="$job"}, "a", "$1-${rest}", "b", "(.*)$")',
            'label_replace(x{j="a.b"}, "a", "$1-${rest}", "b", "(.*)$")',
        ),
        ('x{y="say \\"$job\\""}', 'x{y="say \\"a.b\\""}'),
        ("x[$window] # of $job, isn't it\n + y", "x[1m30s] # of $job, isn't it\n + y"),
        ("up", "up"),
    ],
)
def test_the_job_and_the_window_come_in_and_nothing_else_changes(query: str, expected: str) -> None:
    assert filled(query, job="a.b", window_s=90.0) == expected


def test_a_name_with_quotes_stays_one_string() -> None:
    assert filled('x{j="$job"}', job='a"} or y{z="', window_s=1.0) == 'x{j="a\\"} or y{z=\\""}'
    assert filled("x{j='$job'}", job="a'\\", window_s=1.0) == "x{j='a\\'\\\\'}"


@given(job=st.text(alphabet="ab\"'\\$}\n", max_size=12))
def test_no_name_ends_the_string_that_it_stands_in(job: str) -> None:
    for quote in "\"'":
        query = filled(f"x{{j={quote}$job{quote}}} + y", job=job, window_s=1.0)
        assert is_closed(query)
        assert query.endswith(f"{quote}}} + y")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (60.0, "1m"),
        (90.0, "1m30s"),
        (5400.0, "1h30m"),
        (1.5, "1s500ms"),
        (0.0, "1ms"),
        (86400, "1d"),
    ],
)
def test_a_window_is_a_duration_of_promql(seconds: float, text: str) -> None:
    assert window_text(seconds) == text


def test_what_a_query_names_by_a_dollar_is_found_with_the_place() -> None:
    query = 'x{j="$job", k=$job}[$window] + "$window" + "$1 ${other}"'
    assert variables(query) == ("job", "window", "other")
    assert unquoted(query) == ("job", "window")
    assert unquoted('x{j="$job"}') == ()


def test_a_quote_without_its_other_half_is_seen() -> None:
    assert is_closed('x{j="a\\""}')
    assert not is_closed('x{j="a}')


def test_prometheus_takes_what_is_filled_in(tmp_path: Path) -> None:
    """Its own parser, of strings and regular expressions too, with names that no job may have."""
    queries = [
        'rate(x{job_name="$job"}[$window])',
        "x{a='$job', b!~'$job-.*'}",
        "x{b=~ `$job.*`}",
        'rate(x{a=~"b|$job"}[${window}:5s]) # $job',
        'label_replace(x{a="$job"}, "b", "$1-${rest}", "c", "(.)(?P<rest>.*)")',
    ]
    jobs = (("a.b-c_1", 90.0), ("llama", 1.5), ("o\"dd\\ 'na|me[(\n", 700_000.25))
    rules = [
        {
            "record": "r",
            "labels": {"n": f"{query} {job}"},
            "expr": filled(query, job=job, window_s=s),
        }
        for query in queries
        for job, s in jobs
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    done = subprocess.run(
        [promtool(), "check", "rules", str(path)], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("x", 0.0),
        ("sum(rate(x[$window]))", 60.0),
        ("rate(x[1h30m])", 5_400.0),
        ("rate(x[600])", 600.0),
        ('rate(x{a="[9h]"}[1m]) # [9h]', 60.0),
        ("rate(x[1m]) / rate(y[5m])", 300.0),
        ("max_over_time(rate(x[5m])[1h:1m])", 3_900.0),
        ("rate(x[5m] offset 1w)", 605_100.0),
    ],
)
def test_how_far_back_a_query_looks(query: str, seconds: float) -> None:
    assert reach_s(query, 60.0) == seconds

"""Several queries in one, and whose answer is whose."""

from elasticd.autoscale.prometheus.answer import QueryAnswer, Sample
from elasticd.autoscale.prometheus.batch import apart, union

PART = "elasticd_part"


def sample(text: str, **labels: str) -> Sample:
    return Sample(labels=labels, at_s=5.0, text=text)


def vector(*samples: Sample) -> QueryAnswer:
    return QueryAnswer(kind="vector", samples=samples)


def test_each_part_gets_its_own_label() -> None:
    """A comment at the end of one does not swallow what follows."""
    assert union(["x # y", "z"]) == (
        f'label_replace((\nx # y\n), "{PART}", "0", "", "") or '
        f'label_replace((\nz\n), "{PART}", "1", "", "")'
    )


def test_parts_get_their_series_back_without_our_label() -> None:
    """Two of one, none of another."""
    answer = vector(
        sample("1", **{PART: "2", "a": "b"}), sample("2", **{PART: "0"}), sample("3", **{PART: "2"})
    )
    assert apart(answer, ["x", "y", "z"]) == {
        "x": vector(sample("2")),
        "y": vector(),
        "z": vector(sample("1", a="b"), sample("3")),
    }


def test_answer_that_nobody_can_take_apart_is_none() -> None:
    """A warning may be of any part; a series without our label is of none."""
    assert apart(QueryAnswer(kind="vector", warnings=("partial",)), ["x"]) is None
    assert apart(QueryAnswer(kind="scalar", samples=(sample("1"),)), ["x"]) is None
    assert apart(vector(sample("1")), ["x"]) is None
    assert apart(vector(sample("1", **{PART: "7"})), ["x"]) is None

"""What people are told of the state of a job that was stopped."""

import pytest

from elasticd.records.codec import decode, encode
from elasticd.records.ids import Generation, Incarnation, NodeId
from elasticd.records.member import Result, Saved

WHY = "no time"


@pytest.mark.parametrize(
    ("saved", "sentence"),
    [
        (Saved(at_step=9, durable_step=9), "saved at step 9, nothing is lost"),
        (Saved(at_step=0, why=WHY), "stopped before its first step"),
        (
            Saved(at_step=9, durable_step=4, why=WHY),
            (
                "stopped at step 9 without saving it; step 4 is durable, "
                "the 5 steps since then may be lost: no time"
            ),
        ),
        (
            Saved(at_step=1, why=WHY),
            (
                "stopped at step 1 without saving it; no checkpoint is known to be durable, "
                "up to 1 step may be lost: no time"
            ),
        ),
    ],
)
def test_sentence_says_what_is_lost(saved: Saved, sentence: str) -> None:
    assert saved.sentence == sentence


def test_nodes_together_know_what_one_knows() -> None:
    """What is durable for one is durable; who was stuck was a step behind."""
    good, bad = Saved(at_step=9, durable_step=9), Saved(at_step=8, durable_step=4, why=WHY)
    assert good + bad == bad + good == good
    worse = Saved(at_step=9, why="another")
    assert bad + worse == Saved(at_step=9, durable_step=4, why=WHY)


def test_result_of_an_older_version_says_nothing() -> None:
    result = Result(node=NodeId("a"), incarnation=Incarnation("i"), generation=Generation(1))
    assert decode(Result, encode(result)).saved is None

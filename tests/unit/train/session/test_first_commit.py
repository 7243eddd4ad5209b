"""What a rank tells with its first commit of a generation."""

from elasticd.channel.worker import Formed
from elasticd.records.ids import Generation
from elasticd.train.session.first_commit import FirstCommit


def test_phases_have_the_digits_that_a_clock_is_good_for() -> None:
    """They stand in etcd and in incidents.jsonl, and sixteen digits are noise there."""
    formed = Formed(generation=Generation(2), step=5, phases_s={"form": 0.0123456789})
    first = FirstCommit(formed, begun=6, note="")
    stepped = first.stepped(6, first._formed_at_s + 0.0254321)
    assert stepped.phases_s == {"form": 0.0123, "step": 0.0254}

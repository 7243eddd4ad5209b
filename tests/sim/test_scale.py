"""The cost of a change does not grow with the square of the nodes: counted, not timed."""

from tests.sim.scale import measure


def test_events_and_writes_per_member_do_not_depend_on_the_number_of_nodes() -> None:
    """300 nodes form a world, lose 30 at once and form the next; 60 nodes cost each the same."""
    small, large = measure(60), measure(300)
    assert large.generations == 2, "30 nodes lost at once are one change"
    assert large.writes <= 3
    assert large.events <= 60 and large.events <= small.events * 1.3
    assert large.proposer_events <= 12 * 300
    assert large.total_events <= 80 * 300

"""Whether the workers of a job here have written nothing for too long."""

from elasticd_agent.output_monitor.silence import Heard, News, OutputSilence, Silent


def told(silence: OutputSilence, sizes: list[dict[int, int]]) -> list[tuple[int, News]]:
    """Look once a second; return what was told when."""
    return [
        (second, news)
        for second, each in enumerate(sizes)
        for news in silence.poll(each, float(second))
    ]


def test_silence_of_all_is_told_once_and_when_one_of_them_writes_again() -> None:
    """Rank 0 prints for all; what the others write, if they do, does not matter."""
    sizes = [{1: min(second, 3), 2: 0} for second in range(10)] + [{1: 4, 2: 0}] * 6
    assert told(OutputSilence(5.0, 1.0), sizes) == [
        (8, Silent(pid=1, since_s=5.0)),
        (8, Silent(pid=2, since_s=5.0)),
        (10, Heard(pid=1)),
        (10, Heard(pid=2)),
        (15, Silent(pid=1, since_s=5.0)),
        (15, Silent(pid=2, since_s=5.0)),
    ]


def test_end_of_one_counts_as_output() -> None:
    """Rank 0 is done, and the others, which never printed, have only to exit."""
    sizes = [{1: second, 2: 0} for second in range(20)] + [{2: 0}] * 6
    assert told(OutputSilence(5.0, 1.0), sizes) == [(25, Silent(pid=2, since_s=5.0))]


def test_nobody_is_told_silent_without_a_limit() -> None:
    """The default: a script that prints nothing is no less well."""
    assert told(OutputSilence(0.0, 1.0), [{1: 0}] * 100) == []


def test_time_in_which_nobody_looked_does_not_count() -> None:
    """The machine was suspended, or the run folder hung: the workers had no say either."""
    silence = OutputSilence(5.0, 1.0)
    silence.poll({1: 0}, 0.0)
    silence.poll({1: 0}, 1.0)
    assert silence.poll({1: 0}, 100.0) == []
    assert silence.poll({1: 0}, 103.0) == []
    assert silence.poll({1: 0}, 104.0) == [Silent(pid=1, since_s=5.0)]

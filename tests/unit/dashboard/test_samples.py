"""The history of a job's progress is bounded and never loses its ends."""

from itertools import pairwise

from elasticd.dashboard.samples import SAMPLES_LIMIT, ProgressSample, ProgressSamples


def _sample(at_s: float) -> ProgressSample:
    return ProgressSample(at_unix_s=at_s, step=int(at_s), step_s=1.0)


def test_all_are_kept_until_there_are_too_many_then_evenly() -> None:
    """However long a job is looked at: it begins where it began and ends where it is."""
    samples = ProgressSamples()
    for at in range(10):
        samples.add(_sample(at))
    assert [each.step for each in samples.all()] == list(range(10))
    for at in range(10, 50_000):
        samples.add(_sample(at))
    kept = samples.all()
    assert SAMPLES_LIMIT // 3 <= len(kept) <= SAMPLES_LIMIT + 1
    assert (kept[0].step, kept[-1].step) == (0, 49_999)
    gaps = [after.step - before.step for before, after in pairwise(kept)]
    assert max(gaps) <= 4 * min(gaps[:-1])


def test_one_that_is_not_newer_is_left() -> None:
    """A clock that was set back makes no curve that runs backwards."""
    samples = ProgressSamples()
    assert samples.all() == ()
    for at in (5.0, 4.0, 5.0):
        samples.add(_sample(at))
    assert [each.step for each in samples.all()] == [5]

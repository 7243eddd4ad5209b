"""The history of a job's progress is bounded and never loses its ends."""

from itertools import pairwise

from elasticd.dashboard.samples import SAMPLES_LIMIT, ProgressSample, ProgressSamples


def _sample(at_s: float) -> ProgressSample:
    return ProgressSample(at_s=at_s, at_unix_s=at_s, step=int(at_s), step_s=1.0)


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


def test_clock_that_was_set_back_moves_what_was_before() -> None:
    """The curve goes on at once, and ends now; one set forward leaves a gap, as a sleep does."""
    samples = ProgressSamples()
    for second, clock_s in enumerate((1000.0, 1001.0, 1002.0, 402.5, 403.5, 9000.0)):
        samples.add(ProgressSample(at_s=second, at_unix_s=clock_s, step=second, step_s=1.0))
    at = [each.at_unix_s for each in samples.all()]
    assert at == [399.5, 400.5, 401.5, 402.5, 403.5, 9000.0]
    assert samples.times_moved == 1


def test_clock_that_is_set_back_moves_also_those_that_are_kept_in_thinner_rows() -> None:
    """Also the newest one, which is kept beside the others."""
    samples = ProgressSamples()
    for at in range(3 * SAMPLES_LIMIT):
        samples.add(_sample(at))
    before, at = samples.all(), 3 * SAMPLES_LIMIT
    samples.add(ProgressSample(at_s=at, at_unix_s=at - 600.0, step=at, step_s=1.0))
    after = {each.step: each.at_unix_s for each in samples.all()}
    assert all(after[each.step] == each.at_unix_s - 600.0 for each in before[:-1])
    assert after[at] == at - 600.0

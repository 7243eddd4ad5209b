"""Ledger: each position that goes by is counted, repeated, skipped or left out."""

import json

from elasticd.train.data.ledger import Ledger, SampleSpan


def _span(epoch: int, start: int, stop: int, *, is_left_out: bool = False) -> SampleSpan:
    return SampleSpan(epoch=epoch, start=start, stop=stop, length=100, is_left_out=is_left_out)


def _counts(*spans: SampleSpan) -> tuple[int, int, int, int]:
    ledger = Ledger()
    ledger.take(spans)
    return ledger.samples, ledger.repeated, ledger.skipped, ledger.left_out


def test_what_joins_is_counted() -> None:
    """Over commits and over the end of an epoch."""
    ledger = Ledger()
    for span in (_span(0, 0, 64), _span(0, 64, 100), _span(1, 0, 64)):
        ledger.take([span])
    assert (ledger.samples, ledger.repeated, ledger.skipped, ledger.left_out) == (164, 0, 0, 0)
    assert (ledger.epochs, ledger.epoch, ledger.consumed) == (1, 1, 64)


def test_an_overlap_is_repeated() -> None:
    """Only the part that was there before."""
    assert _counts(_span(0, 0, 64), _span(0, 32, 96)) == (96, 32, 0, 0)
    assert _counts(_span(0, 0, 64), _span(0, 10, 20)) == (64, 10, 0, 0)


def test_a_gap_is_skipped() -> None:
    """At the beginning, in the middle and at the end of an epoch, and a whole one."""
    assert _counts(_span(0, 10, 20)) == (10, 0, 10, 0)
    assert _counts(_span(0, 0, 10), _span(0, 20, 30)) == (20, 0, 10, 0)
    assert _counts(_span(0, 0, 90), _span(1, 0, 10)) == (100, 0, 10, 0)
    assert _counts(_span(0, 0, 100), _span(2, 5, 10)) == (105, 0, 105, 0)


def test_an_epoch_that_is_over_can_only_be_repeated() -> None:
    """Also right after its last sample."""
    assert _counts(_span(0, 0, 100), _span(0, 90, 100)) == (100, 10, 0, 0)
    assert _counts(_span(0, 0, 100), _span(1, 0, 9), _span(0, 0, 5)) == (109, 5, 0, 0)


def test_what_the_script_left_out_is_not_skipped() -> None:
    """It must be declared, and only what was not counted is left out."""
    assert _counts(_span(0, 0, 60), _span(0, 60, 100, is_left_out=True), _span(1, 0, 9)) == (
        (69, 0, 0, 40)
    )
    assert _counts(_span(0, 0, 60), _span(0, 50, 100, is_left_out=True)) == (60, 0, 0, 40)
    assert _counts(_span(0, 0, 50), _span(0, 60, 100, is_left_out=True)) == (50, 0, 10, 40)
    assert _counts(_span(0, 0, 100), _span(0, 60, 100, is_left_out=True)) == (100, 0, 0, 0)


def test_it_can_begin_where_a_loader_stands() -> None:
    """A loader that was loaded from another run's state did not skip what came before."""
    ledger = Ledger(epoch=3, consumed=40)
    ledger.take([_span(3, 40, 50)])
    assert (ledger.samples, ledger.skipped, ledger.epochs) == (10, 0, 0)


def test_its_state_is_plain_and_goes_on() -> None:
    """Through JSON, in the middle of an epoch."""
    ledger = Ledger()
    ledger.take([_span(0, 0, 64), _span(0, 60, 70), _span(0, 75, 80)])
    other = Ledger()
    other.load_state_dict(json.loads(json.dumps(ledger.state_dict())))
    for one in (ledger, other):
        one.take([_span(1, 0, 10)])
    assert other.state_dict() == ledger.state_dict()
    assert (other.samples, other.repeated, other.skipped) == (85, 4, 25)

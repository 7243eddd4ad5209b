"""When a node tells of its waits: seldom, at once when it matters, and never a stale value."""

import dataclasses

from elasticd.goodput.wait_report import DEBOUNCE_STEPS, FIRST_STEPS, WRITE_EVERY_S, WaitReport
from elasticd.records.account.late import NodeWait
from elasticd.records.ids import Generation


def wait(share: float, *, steps: int = 50, generation: int = 1) -> NodeWait:
    return NodeWait(generation=Generation(generation), steps=steps, step_s=0.1, wait_s=0.1 * share)


def stable_report(
    report: WaitReport, found: NodeWait, at_s: float, nodes: int = 3
) -> NodeWait | None:
    """Measure the same until it is told, or could have been."""
    for beat in range(DEBOUNCE_STEPS // 2 + 2):
        due = report.due(found, nodes, at_s + 0.2 * beat)
        if due is not None:
            return due
    return None


def test_first_waits_of_each_generation_are_told() -> None:
    """Once there are enough of them."""
    report = WaitReport()
    assert report.due(wait(0.1, steps=FIRST_STEPS - 1), 3, 1.0) is None
    assert report.due(wait(0.1, steps=FIRST_STEPS), 3, 2.0) == wait(0.1, steps=FIRST_STEPS)
    assert report.due(wait(0.11), 3, 3.0) is None
    again = wait(0.11, generation=2)
    assert report.due(again, 3, 4.0) == again


def test_notable_change_is_told_once_it_has_lasted() -> None:
    """By then most of the steps of the median are of the new kind, and one word is enough."""
    report = WaitReport()
    report.due(wait(0.05), 3, 1.0)
    assert report.due(wait(0.3), 3, 10.0) is None
    assert report.due(wait(0.05), 3, 10.2) is None  # It was nothing.
    assert stable_report(report, wait(0.3), 11.0) == wait(0.3)


def test_waits_that_keep_changing_become_unknown_and_then_known_again() -> None:
    """A value that stands still is not compared with one that moves; and etcd is left in peace."""
    report = WaitReport()
    told = [report.due(wait(0.05), 3, 1.0)]
    at_s = 2.0
    for number in range(12):
        told.append(stable_report(report, wait(0.3 if number % 2 else 0.05 + 0.01 * number), at_s))
        at_s += 2.0
    said = [each for each in told if each is not None]
    assert len(said) <= 6 + at_s / WRITE_EVERY_S
    assert said[-1].steps == 0
    for _ in range(20):
        at_s += WRITE_EVERY_S / 4
        if (due := report.due(wait(0.2), 3, at_s)) is not None:
            assert due == wait(0.2)
            return
    raise AssertionError("it stayed unknown")


def test_large_job_writes_ten_times_a_second_at_most() -> None:
    """A thousand nodes that all wait for one tell it at once, and then seldom."""
    report, at_s, told = WaitReport(), 0.0, 0
    for number in range(5000):
        at_s += 0.2
        share = 0.3 if number // 20 % 2 else 0.05
        told += report.due(wait(share), 1000, at_s) is not None
    assert told <= 6 + at_s / 100


def test_spread_that_was_too_wide_is_told_again() -> None:
    """A change is told while some steps of the old kind are among those of the new one."""
    wide = dataclasses.replace(wait(0.3), low_s=0.005, high_s=0.031)
    narrow = dataclasses.replace(wait(0.3), low_s=0.029, high_s=0.031)
    report = WaitReport()
    report.due(wait(0.05), 3, 1.0)
    assert stable_report(report, wide, 2.0) == wide
    assert stable_report(report, narrow, 10.0) == narrow
    for number in range(6):
        at_s = 13.0 + 3 * number
        last = stable_report(report, wide if number % 2 else narrow, at_s)
    assert last is None  # What is left is for what matters more.
    assert stable_report(report, wait(0.05), at_s + 5.0) == wait(0.05)

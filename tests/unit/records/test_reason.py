"""What the reasons of a change of world say of it."""

import pytest

from elasticd.records.reason import Reason


@pytest.mark.parametrize("reason", list(Reason))
def test_what_nobody_wished_is_a_fault(reason: Reason) -> None:
    """But for a job's beginning and end, and a node whose agent said goodbye in time.

    A node that came back before its loss was noticed was lost all the same.
    """
    orderly = {Reason.FIRST_WORLD, Reason.NODE_LEFT, Reason.ALL_SUCCEEDED}
    assert reason.is_fault == (not reason.is_planned and reason not in orderly)

"""The numbers that follow from an account: the one formula of goodput."""

from collections.abc import Iterable, Mapping

from elasticd.goodput.cause import TimeCause

__all__ = ["attainment", "causes_of", "goodput", "total"]

_CAUSES = {cause.value: cause for cause in TimeCause}


def goodput(seconds: Mapping[TimeCause, float]) -> float | None:
    """Return the share of the slots' time in steps which counted; None if there was no time.

    Spare slots wait for a fault of other nodes, and are not included.
    """
    spare_s = seconds.get(TimeCause.SPARE, 0.0)
    used_s = sum(seconds.values()) - spare_s
    return seconds.get(TimeCause.TRAIN, 0.0) / used_s if used_s > 0.0 else None


def attainment(seconds: Mapping[TimeCause, float], wanted_s: float) -> float | None:
    """Return training time divided by the wanted time; None if no time was wanted.

    `wanted_s` is the number of wanted slots times the time that has passed, in slot-seconds. Slots
    that the job held, except spares, count as wanted too: each agent writes its seconds at its own
    moments, so the sum may be a little more than the time that one agent counts as wanted, and the
    attainment would exceed the goodput.
    """
    if wanted_s <= 0.0:
        return None
    used_s = sum(seconds.values()) - seconds.get(TimeCause.SPARE, 0.0)
    return seconds.get(TimeCause.TRAIN, 0.0) / max(wanted_s, used_s)


def total(accounts: Iterable[Mapping[TimeCause, float]]) -> Mapping[TimeCause, float]:
    """Add the accounts of several nodes, or of several time spans."""
    found: dict[TimeCause, float] = {}
    for account in accounts:
        for cause, seconds in account.items():
            found[cause] = found.get(cause, 0.0) + seconds
    return found


def causes_of(plain: Mapping[str, float]) -> Mapping[TimeCause, float]:
    """Build an account from a record's words; a word of a newer elasticd becomes `unexplained`."""
    named = ((_CAUSES.get(name, TimeCause.UNEXPLAINED), value) for name, value in plain.items())
    return total({cause: max(0.0, float(value))} for cause, value in named)

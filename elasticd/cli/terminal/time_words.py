"""Sentences and rows about a job's time account. Pure."""

from elasticd.control.report.job_time import JobTime
from elasticd.goodput.cause import TimeCause

__all__ = ["shares_line", "time_rows", "time_sentence"]

SHOWN_S = 0.05
"""Causes with less time than this are left out, since they would be a row of zeros."""
SHARES = 4
"""The number of shares in a text of one line, which replaces a table."""


def time_rows(time: JobTime) -> list[tuple[str, str, str]]:
    """Return one row for each cause that took time: training first, then by cost, then the sum."""
    taken = {cause: value for cause, value in time.seconds.items() if value >= SHOWN_S}
    order = sorted(taken, key=lambda cause: (cause is not TimeCause.TRAIN, -taken[cause]))
    rows = [
        (_name(cause, time), f"{taken[cause]:.1f}", _share(taken[cause], time)) for cause in order
    ]
    return [*rows, ("all", f"{time.total_s:.1f}", _share(time.total_s, time))]


def time_sentence(time: JobTime) -> str:
    """Return a sentence with the important shares, and the total to which they refer."""
    agents = time.unwritten_agents
    missing = f"of {agents} agent{'s' if agents > 1 else ''} the last account was not written"
    if time.goodput is None and agents:
        return f"goodput: not known, since {missing}"
    if time.goodput is None:
        return "goodput: no slot had any time yet"
    text = f"goodput {time.goodput:.1%} of the time of all slots but spare ones"
    if time.attainment is not None:
        text += f", attainment {time.attainment:.1%} of what was wanted"
    if not time.has_steps:
        text += " (steps are not seen here: all that workers ran counts)"
    return f"{text}; {missing}" if agents else text


def shares_line(time: JobTime) -> str:
    """Return one line with the goodput and the causes that cost most."""
    if time.goodput is None:
        return ""
    rows = time_rows(time)[:-1]
    shares = ", ".join(f"{cause} {share}" for cause, _, share in rows[:SHARES])
    return f"goodput {time.goodput:.1%} ({shares}; `elasticd why` has all)"


def _name(cause: TimeCause, time: JobTime) -> str:
    is_running = cause is TimeCause.TRAIN and not time.has_steps
    return "running" if is_running else cause.value


def _share(value: float, time: JobTime) -> str:
    return f"{value / time.total_s:.1%}" if time.total_s > 0.0 else ""

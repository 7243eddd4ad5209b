"""A job that trains and has been measured, as one evaluation sees it."""

from elasticd.autoscale.evaluation_input import Observation
from elasticd.records.ids import Generation

__all__ = ["SEEN"]

SEEN = Observation(
    job="digits",
    uid="u1",
    now_s=1000.0,
    unix_s=5000.0,
    min_nodes=1,
    max_nodes=8,
    nodes=4,
    wanted=4,
    is_running=True,
    is_in_process=True,
    generation=Generation(3),
    available=8,
    step=500,
    has_full_window=True,
)

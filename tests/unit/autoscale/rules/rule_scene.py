"""A job as the rules see it."""

from collections.abc import Mapping

from elasticd.autoscale.evaluation_input import Observation, QueryReading
from elasticd.records.ids import Generation

__all__ = ["seen"]


def seen(
    nodes: int,
    *,
    low: int = 1,
    high: int = 16,
    step: int = 1000,
    now_s: float = 10_000.0,
    unix_s: float = 1e9,
    wanted: int | None = None,
    is_paused: bool = False,
    is_in_process: bool = True,
    data_share: float = 0.0,
    used_node_hours: float = 0.0,
    readings: Mapping[str, QueryReading] | None = None,
) -> Observation:
    return Observation(
        job="j",
        uid="u",
        now_s=now_s,
        unix_s=unix_s,
        min_nodes=low,
        max_nodes=high,
        nodes=nodes,
        wanted=nodes if wanted is None else wanted,
        is_running=nodes > 0,
        is_in_process=is_in_process,
        generation=Generation(1),
        available=high,
        step=step,
        is_paused=is_paused,
        data_share=data_share,
        used_node_hours=used_node_hours,
        readings=readings or {},
    )

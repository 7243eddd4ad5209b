"""What the record of a world weighs and what it costs to write and to read, by its nodes."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elasticd.records.codec import decode, encode
from elasticd.records.world import World
from tests.fixtures.large_world import large_world

__all__ = ["WORKERS", "RecordCost", "fit", "measure_record", "record_table"]

WORKERS = 8
TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCost:
    nodes: int
    value_bytes: int
    """As it stands in etcd."""
    encode_s: float
    """Once for each change, by the proposer; where it is large, once more to see that it fits."""
    decode_s: float
    """Once for each change, by every node."""


def measure_record(nodes: int) -> RecordCost:
    """Write and read a world of so many nodes with eight workers; the quickest of some tries."""
    world = large_world(nodes, WORKERS)
    value = encode(world)
    return RecordCost(
        nodes=nodes,
        value_bytes=len(value),
        encode_s=_quickest_s(lambda: encode(world)),
        decode_s=_quickest_s(lambda: decode(World, value)),
    )


def fit(costs: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return (a, b) of seconds = a + b x nodes, least squares on the relative errors.

    On the absolute ones the largest size would decide alone.
    """
    weights = [1.0 / seconds**2 for _, seconds in costs]
    total = sum(weights)
    n_mean = sum(w * n for w, (n, _) in zip(weights, costs, strict=True)) / total
    s_mean = sum(w * s for w, (_, s) in zip(weights, costs, strict=True)) / total
    spread = sum(w * (n - n_mean) ** 2 for w, (n, _) in zip(weights, costs, strict=True))
    b = sum(w * (n - n_mean) * (s - s_mean) for w, (n, s) in zip(weights, costs, strict=True))
    return s_mean - b / spread * n_mean, b / spread


def record_table(costs: Sequence[RecordCost], rules_s: Sequence[float]) -> str:
    """The figures as a Markdown table; `rules_s`: what the rules cost a node for one change."""
    heads = ("nodes", "world in etcd", "for each node", "encode", "decode", "rules", "in all")
    rows = ["| " + " | ".join(heads) + " |", "|" + "---:|" * len(heads)]
    for cost, rule_s in zip(costs, rules_s, strict=True):
        cells = (
            f"{cost.nodes:,}",
            f"{cost.value_bytes / 1e6:.3f} MB",
            f"{cost.value_bytes / cost.nodes:.0f} bytes",
            f"{1e3 * cost.encode_s:.1f} ms",
            f"{1e3 * cost.decode_s:.1f} ms",
            f"{1e3 * rule_s:.1f} ms",
            f"{1e3 * (rule_s + cost.decode_s):.1f} ms",
        )
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _quickest_s(call: Callable[[], object]) -> float:
    best_s = float("inf")
    for _ in range(TRIES):
        gc.collect()
        begun_s = time.process_time()
        call()
        best_s = min(best_s, time.process_time() - begun_s)
    return best_s

"""What a call of `elasticd run` says of faults: how many are survived, and after which time.

Pure. The first group of flags counts, the second waits, the third looks at what is computed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticd.cli import parse_value
from elasticd.errors import CallError
from elasticd.records.account.late import OnLate
from elasticd.records.job import Limits

__all__ = ["FaultPolicy", "fault_policy_of"]

LEAST_SILENCE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPolicy:
    """What a job survives; each field is the one of the same name in `JobSpec`."""

    limits: Limits = field(default_factory=Limits)
    shutdown_timeout_s: float = 30.0
    formation_timeout_s: float = 60.0
    join_window_s: float = 0.2
    isolation_limit_s: float = 60.0
    progress_timeout_s: float = 60.0
    output_timeout_s: float = 0.0
    on_nan: str = "ignore"
    on_late: OnLate = OnLate.REPORT
    compare_every: int | None = None
    """How often replicas are compared; None: after the first commits, then more and more seldom; 0:
    never."""


def fault_policy_of(
    values: Mapping[str, Any], environ: Mapping[str, str], conf: Mapping[str, str]
) -> FaultPolicy:
    """Return what the flags and torchrun's `--rdzv-conf`, which is `conf`, say of faults.

    Raises: CallError: a flag's value is malformed or out of its range.
    """
    return FaultPolicy(
        limits=Limits(
            user_error=parse_value.whole("--max-restarts", values["max_restarts"], 3, least=0),
            node_loss=parse_value.whole(
                "--max-node-losses", values["max_node_losses"], 100, least=-1
            ),
        ),
        shutdown_timeout_s=parse_value.seconds(
            "--shutdown-timeout",
            values["shutdown_timeout"] or environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT"),
            30.0,
        ),
        formation_timeout_s=parse_value.seconds(
            "--formation-timeout",
            values["formation_timeout"] or conf.get("join_timeout"),
            60.0,
            least_s=1.0,  # With none every world is late as it is agreed on.
        ),
        join_window_s=parse_value.seconds(
            "--join-window", values["join_window"] or conf.get("last_call_timeout"), 0.2
        ),
        isolation_limit_s=parse_value.seconds("--isolation-limit", values["isolation_limit"], 60.0),
        progress_timeout_s=parse_value.seconds(
            "--progress-timeout", values["progress_timeout"], 60.0
        ),
        output_timeout_s=_output_timeout(values["output_timeout"]),
        on_nan=_on_nan(values["on_nan"]),
        on_late=_on_late(values["on_late"]),
        compare_every=(
            None
            if values["compare_every"] is None
            else parse_value.whole("--compare-every", values["compare_every"], 0, least=0)
        ),
    )


def _output_timeout(text: str | None) -> float:
    value_s = parse_value.seconds("--output-timeout", text, 0.0)
    if 0.0 < value_s < LEAST_SILENCE_S:
        raise CallError(
            f"--output-timeout {text} is below {LEAST_SILENCE_S:g} seconds: files are looked at "
            "once a second. 0 means never."
        )
    return value_s


def _on_nan(text: str | None) -> str:
    if text not in (None, "stop", "skip", "ignore"):
        raise CallError(f"--on-nan {text} is none of stop, skip, ignore.")
    return text or "ignore"


def _on_late(text: str | None) -> OnLate:
    if text not in (None, *OnLate):
        raise CallError(f"--on-late {text} is none of {', '.join(OnLate)}.")
    return OnLate(text or OnLate.REPORT)

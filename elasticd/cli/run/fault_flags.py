"""The flags of `elasticd run` about faults: restart limits, timeouts, checks of results. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from elasticd.cli import parse_value
from elasticd.errors import CallError
from elasticd.records.account.late import OnLate
from elasticd.records.job import JobSpec, Limits

__all__ = ["with_faults"]

LEAST_SILENCE_S = 5.0


def with_faults(
    draft: JobSpec, values: Mapping[str, Any], environ: Mapping[str, str], conf: Mapping[str, str]
) -> JobSpec:
    """Return the spec with the flags about faults; other fields stay as they are in `draft`.

    `conf` is the parsed `--rdzv-conf` of torchrun, which also has timeouts.

    Raises: CallError: a flag's value is malformed or out of its range.
    """
    seconds = parse_value.seconds
    variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
    shutdown_timeout_s = seconds(
        *_first("--shutdown-timeout", values["shutdown_timeout"], variable, environ.get(variable)),
        draft.shutdown_timeout_s,
    )
    compare_every = parse_value.whole(
        "--compare-every", values["compare_every"], draft.compare_every, least=0
    )
    return replace(
        draft,
        limits=_limits(draft.limits, values),
        shutdown_timeout_s=shutdown_timeout_s,
        failure_timeout_s=min(draft.failure_timeout_s, shutdown_timeout_s),
        formation_timeout_s=seconds(
            *_first(
                "--formation-timeout",
                values["formation_timeout"],
                "--rdzv-conf join_timeout",
                conf.get("join_timeout"),
            ),
            draft.formation_timeout_s,
            least_s=1.0,  # With 0 s, each world would be too late.
        ),
        join_window_s=seconds(
            *_first(
                "--join-window",
                values["join_window"],
                "--rdzv-conf last_call_timeout",
                conf.get("last_call_timeout"),
            ),
            draft.join_window_s,
        ),
        isolation_limit_s=seconds(
            "--isolation-limit", values["isolation_limit"], draft.isolation_limit_s
        ),
        progress_timeout_s=seconds(
            "--progress-timeout", values["progress_timeout"], draft.progress_timeout_s
        ),
        output_timeout_s=_output_timeout(values["output_timeout"], draft.output_timeout_s),
        on_nan=_on_nan(values["on_nan"], draft.on_nan),
        on_late=_on_late(values["on_late"], draft.on_late),
        compare_every=compare_every,
        compares_seldom=values["compare_every"] is None or compare_every != 0,
    )


def _first(
    flag: str, text: str | None, other: str, other_text: str | None
) -> tuple[str, str | None]:
    """Return a flag and its value, or else the other one, so that an error names what was given."""
    return (flag, text) if text else (other, other_text)


def _limits(before: Limits, values: Mapping[str, Any]) -> Limits:
    restarts, losses = values["max_restarts"], values["max_node_losses"]
    return replace(
        before,
        user_error=parse_value.whole("--max-restarts", restarts, before.user_error, least=0),
        node_loss=parse_value.whole("--max-node-losses", losses, before.node_loss, least=-1),
    )


def _output_timeout(text: str | None, default_s: float) -> float:
    value_s = parse_value.seconds("--output-timeout", text, default_s)
    if 0.0 < value_s < LEAST_SILENCE_S:
        raise CallError(
            f"--output-timeout {text} is below {LEAST_SILENCE_S:g} seconds: files are looked at "
            "once a second. 0 means never."
        )
    return value_s


def _on_nan(text: str | None, default: str) -> str:
    if text not in (None, "stop", "skip", "ignore"):
        raise CallError(f"--on-nan {text} is none of stop, skip, ignore.")
    return text or default


def _on_late(text: str | None, default: OnLate) -> OnLate:
    if text not in (None, *OnLate):
        raise CallError(f"--on-late {text} is none of {', '.join(OnLate)}.")
    return OnLate(text or default)

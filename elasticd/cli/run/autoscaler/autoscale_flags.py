"""The flags of `elasticd run` about the autoscaler, checked against each other."""

from collections.abc import Mapping
from typing import Any

from elasticd.errors import CallError

__all__ = ["autoscale_flag", "prometheus_flag"]


def autoscale_flag(values: Mapping[str, Any], *, is_join: bool) -> str:
    """Return the path of the policy file; empty if there is none.

    Raises: CallError: `--join` was given, so that several hosts would set a policy.
    """
    if values["autoscale"] and is_join:
        raise CallError(
            "--autoscale is not for --join: `elasticd autoscale set` gives the job its policy once "
            "it runs, and `elasticd autoscale run` sizes it."
        )
    return values["autoscale"] or ""


def prometheus_flag(
    values: Mapping[str, Any], environ: Mapping[str, str], *, is_submit: bool
) -> str:
    """Return the URL of Prometheus; empty if there is none, or if this call does not ask it.

    Raises: CallError: the flag was given in a call that does not ask Prometheus.
    """
    url = values["prometheus"] or ""
    if values["autoscale"] and not is_submit:
        return url
    if url and not environ.get("ELASTICD_PROMETHEUS"):
        raise CallError(
            "--prometheus is for the autoscaler of a cluster, which `elasticd autoscale run` "
            "starts: leave it out here."
            if is_submit
            else "--prometheus is for --autoscale FILE: give both, or leave it out."
        )
    return ""

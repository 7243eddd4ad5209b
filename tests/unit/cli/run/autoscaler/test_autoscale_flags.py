"""Flags of `elasticd run` that go together, or not."""

import pytest

from elasticd.cli.run.autoscaler.autoscale_flags import autoscale_flag, prometheus_flag
from elasticd.errors import CallError

BOTH = {"autoscale": "p.toml", "prometheus": "http://p:9090"}
ALONE = {"autoscale": None, "prometheus": "http://p:9090"}


def test_prometheus_is_asked_by_the_autoscaler_of_a_local_run() -> None:
    """Elsewhere nobody would ask it, and whoever names one is told."""
    assert prometheus_flag(BOTH, {}, is_submit=False) == "http://p:9090"
    with pytest.raises(CallError, match="is for --autoscale FILE: give both"):
        prometheus_flag(ALONE, {}, is_submit=False)
    with pytest.raises(CallError, match="is for the autoscaler of a cluster"):
        prometheus_flag(BOTH, {}, is_submit=True)


def test_prometheus_of_the_environment_is_nobodys_mistake() -> None:
    """It is set for `elasticd autoscale` in the same shell."""
    environ = {"ELASTICD_PROMETHEUS": "http://p:9090"}
    assert prometheus_flag(ALONE, environ, is_submit=False) == ""
    assert prometheus_flag(BOTH, environ, is_submit=True) == ""


def test_policy_of_several_hosts_is_refused() -> None:
    """It is set once, for the job."""
    assert autoscale_flag(BOTH, is_join=False) == "p.toml"
    with pytest.raises(CallError, match="is not for --join"):
        autoscale_flag(BOTH, is_join=True)

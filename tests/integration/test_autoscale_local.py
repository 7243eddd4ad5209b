"""`elasticd run --autoscale` on one machine: the job, its policy and an autoscaler in one call."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.cluster import SCRIPTS, until
from tests.fixtures.local_run import LocalRun
from tests.fixtures.step_log import StepLog

POLICY = """
window = "4s"
cooldown = "1s"

[[target.metrics]]
name = "elasticd_step"
query = 'max(elasticd_step{job_name="$job"})'
load = 1000000
max_age = "10s"

[target.scale_down]
stabilization = "1s"
"""
"""Of a number that the agents themselves tell, as far from its target as one node less is right."""


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalRun]:
    folder = tmp_path / "here"
    folder.mkdir()
    local = LocalRun(folder)
    yield local
    local.mark.kill_all()


def test_a_local_run_is_sized_without_prometheus_and_leaves_nothing(local: LocalRun) -> None:
    """By what its own agents export; its autoscaler ends with it, and the decision is kept."""
    (local.folder / "policy.toml").write_text(POLICY)
    end = local.folder / "end"
    end.with_name("end.speed").write_text("flat 0.02")
    flags = ("--job", "lap", "--local-agents", "2", "--nnodes", "1:2")
    call = local.call(
        *flags,
        "--autoscale",
        "policy.toml",
        str(SCRIPTS / "scaled.py"),
        str(end),
        env={"ELASTICD_PERIOD": "0.5s"},
    )

    steps = StepLog(local.runs / "lap")
    until(steps.first(lambda step: step.size == 2), lambda: call.err)
    until(steps.first(lambda step: step.size == 1), lambda: call.err)
    end.touch()
    ended = call.wait()
    assert ended.code == 0 and "sized by policy.toml" in ended.err
    local.mark.wait_none_left()
    explained = local.command("autoscale", "explain", "lap")
    assert "2 -> 1" in explained.out, explained.out
    log = (local.runs / "lap" / "agents" / "autoscaler.log").read_text()
    assert '"event": "decision.made"' in log and '"event": "autoscaler.ended"' in log

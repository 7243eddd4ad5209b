"""What a worker reads from its environment."""

import pytest

from elasticd.errors import EnvironmentProblem
from elasticd.train.settings import WorkerSettings


def test_settings_come_from_the_environment() -> None:
    setting = WorkerSettings.read(
        {"ELASTICD_AGENT": "a", "ELASTICD_COMPARE_EVERY": "100", "RANK": "0"}
    )
    assert (setting.agent, setting.compare_every, setting.on_nan) == ("a", 100, "ignore")
    assert setting.is_torchrun
    for name in ("ELASTICD_ON_NAN", "ELASTICD_COMPARE_EVERY"):
        with pytest.raises(EnvironmentProblem, match=name):
            WorkerSettings.read({name: "often"})


@pytest.mark.parametrize(("text", "meant"), [(None, None), ("", None), ("0", 0), ("7", 7)])
def test_replicas_are_compared_seldom_unless_somebody_says_how_often(
    text: str | None, meant: int | None
) -> None:
    env = {} if text is None else {"ELASTICD_COMPARE_EVERY": text}
    assert WorkerSettings.read(env).compare_every == meant


@pytest.mark.parametrize(("text", "meant"), [(None, 0), ("", 0), ("2500000B/s", 2_500_000)])
def test_bandwidth_is_as_the_agent_writes_it(text: str | None, meant: int) -> None:
    env = {} if text is None else {"ELASTICD_MIRROR_BANDWIDTH": text}
    assert WorkerSettings.read(env).mirror_bytes_per_s == meant


def test_program_that_is_no_script_cannot_call_run() -> None:
    """Nothing of torch is kept ready for what `--no-python` starts: no store to meet in."""
    with pytest.raises(EnvironmentProblem, match="--no-python"):
        WorkerSettings.read({"ELASTICD_AGENT": "a", "TORCHELASTIC_USE_AGENT_STORE": "False"})
    WorkerSettings.read({"TORCHELASTIC_USE_AGENT_STORE": "False", "RANK": "0"})

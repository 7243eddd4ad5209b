"""What a worker reads from its environment."""

import pytest

from elasticd.errors import EnvironmentProblem
from elasticd.train.setting import Setting


def test_settings_come_from_the_environment() -> None:
    setting = Setting.read({"ELASTICD_AGENT": "a", "ELASTICD_COMPARE_EVERY": "100", "RANK": "0"})
    assert (setting.agent, setting.compare_every, setting.on_nan) == ("a", 100, "ignore")
    assert setting.is_torchrun
    for name in ("ELASTICD_ON_NAN", "ELASTICD_COMPARE_EVERY"):
        with pytest.raises(EnvironmentProblem, match=name):
            Setting.read({name: "often"})


def test_program_that_is_no_script_cannot_call_run() -> None:
    """Nothing of torch is kept ready for what `--no-python` starts: no store to meet in."""
    with pytest.raises(EnvironmentProblem, match="--no-python"):
        Setting.read({"ELASTICD_AGENT": "a", "TORCHELASTIC_USE_AGENT_STORE": "False"})
    Setting.read({"TORCHELASTIC_USE_AGENT_STORE": "False", "RANK": "0"})

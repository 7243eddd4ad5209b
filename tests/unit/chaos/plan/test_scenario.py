"""A wrong scenario is refused with one sentence that names what is wrong."""

from pathlib import Path
from typing import Any

import pytest

from chaos.error import WrongInput
from chaos.plan.scenario import load, parse


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"sites": {}}, ["no `sites`", "site"]),
        ({"site": {"node": 3}}, ["no `node`", "nodes"]),
        ({"site": {"nodes": "3"}}, ["nodes = '3'", "int"]),
        ({"site": {"nodes": True}}, ["nodes = True", "int"]),
        ({"site": {"nodes": 0}}, ["above 0"]),
        ({"site": {"etcds": 2}}, ["etcds = 2", "neither 1 nor 3"]),
        ({"site": []}, ["not a table"]),
        ({"job": {"min_nodes": 5}}, ["min_nodes = 5", "from 1 to 2"]),
        ({"fault": {"kind": "worker-kill"}}, ["two brackets"]),
        ({"fault": [{}]}, ["no `kind`"]),
        ({"fault": [{"kind": "worker-kil"}]}, ["worker-kil", "worker-kill"]),
        ({"fault": [{"kind": "worker-kill", "node": 2}]}, ["node 2", "2 nodes"]),
        ({"fault": [{"kind": "worker-kill", "times": 0}]}, ["times = 0"]),
        ({"fault": [{"kind": "worker-kill", "after": "previous"}]}, ["no previous one"]),
        ({"fault": [{"kind": "worker-kill", "point": "nowhere"}]}, ["nowhere", "before-commit"]),
        ({"fault": [{"kind": "node-cut"}]}, ["node-cut", "has_network"]),
        ({"fault": [{"kind": "etcd-leader-kill"}]}, ["etcds = 3"]),
        ({"fault": [{"kind": "pod-delete"}]}, ["pod-delete", 'place = "pods"']),
        (
            {"site": {"place": "pods"}, "fault": [{"kind": "agent-kill"}]},
            ["agent-kill", 'place = "processes"'],
        ),
        (
            {"site": {"place": "pods"}, "fault": [{"kind": "agent-other-version"}]},
            ["agent-other-version", "version_before"],
        ),
        ({"site": {"place": "moon"}}, ["moon", "pods"]),
        ({"site": {"place": "pods", "has_network": True}}, ["has_network", "processes"]),
        ({"site": {"place": "pods"}, "job": {"script": "restart_job.py"}}, ["restart_job.py"]),
        ({"random": {"quota": {"worker-kil": 1}}}, ["worker-kil"]),
        ({"random": {"quota": {"worker-kill": -1}}}, ["-1"]),
        ({"random": {"quota": 3}}, ["not a table"]),
        ({"random": {"overlap_share": 2}}, ["between 0 and 1"]),
        ({"verdict": {"end": "fine"}}, ["'fine'"]),
        (
            {"fault": [{"kind": "worker-kill"}], "random": {"quota": {"worker-kill": 1}}},
            ["not both"],
        ),
    ],
)
def test_a_wrong_entry_is_named(table: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(WrongInput) as raised:
        parse(table, name="x")
    sentence = str(raised.value)
    assert sentence.endswith(".") and "\n" not in sentence
    for word in ["x", *words]:
        assert word in sentence


def test_whole_numbers_are_taken_for_seconds() -> None:
    scenario = parse({"job": {"step_sleep_s": 1}}, name="x")
    assert scenario.job.step_sleep_s == 1.0


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=r"no\.toml cannot be read"):
        load(tmp_path / "no.toml")
    (tmp_path / "bad.toml").write_text("[site\n")
    with pytest.raises(WrongInput, match=r"bad\.toml is not TOML"):
        load(tmp_path / "bad.toml")

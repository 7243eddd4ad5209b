"""What the agents of a run are called with on this machine."""

from dataclasses import replace
from pathlib import Path

from elasticd.channel.fork_server import SERVER_VARIABLE
from elasticd.cli.run.agent_call import AgentCalls
from elasticd.cli.run.request import Mode, RunRequest
from elasticd.records.ids import NodeId
from elasticd.store.api import StoreSettings
from tests.unit.control.world_case import JOB, SPEC

SETTINGS = StoreSettings(endpoints=("unix:///etcd",))
HERE = {"ELASTICD_ETCD": "http://other:1", "PATH": "/bin"}
REQUEST = RunRequest(mode=Mode.LOCAL, job=JOB, draft=SPEC, local_agents=2)


def test_agents_of_one_machine_share_its_cores_and_its_fork_server(tmp_path: Path) -> None:
    """A variable of elasticd's would win over what the call says."""
    calls = AgentCalls(REQUEST, SPEC, tmp_path, HERE).local(SETTINGS, "/socket")
    assert [call.node for call in calls] == ["local-0", "local-1"]
    assert {call.address for call in calls} == {"127.0.0.1"}
    wanted = {"PATH": "/bin", SERVER_VARIABLE: "/socket", "OMP_NUM_THREADS": "1"}
    assert all(dict(call.env) == wanted for call in calls)


def test_only_agent_of_a_machine_gets_all_cores(tmp_path: Path) -> None:
    """So does an agent beside other hosts; and it looks for its own address."""
    calls = AgentCalls(replace(REQUEST, local_agents=1), SPEC, tmp_path, HERE)
    assert [dict(call.env) for call in calls.local(SETTINGS, "")] == [{"PATH": "/bin"}]
    joined = calls.one(NodeId("a"), SETTINGS)
    assert (dict(joined.env), joined.address) == ({"PATH": "/bin"}, "")
    assert joined.log_path == tmp_path / JOB / "agents" / "a.log"

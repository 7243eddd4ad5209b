"""Runs of several agents share the fork server of the tests, and begin as if torch was imported."""

from pathlib import Path

from tests.fixtures.local_run import LocalRun
from tests.fixtures.saved_runs import JOIN_S


def test_agents_of_a_run_that_takes_a_server_begin_together(tmp_path: Path) -> None:
    """None begins before all have come, though no import is there to wait for; all are forked."""
    script = "import sys\nprint('torch._dynamo' in sys.modules)\n"
    (tmp_path / "script.py").write_text(script)
    place = LocalRun(tmp_path, shares_server=True)
    flags = ("--local-agents", "2", "--join-window", f"{JOIN_S:g}")
    ended = place.run("--job", "job", *flags, "script.py")
    assert ended.code == 0 and "world sizes: 2\n" in ended.err, ended.err
    assert [path.read_text() for path in place.runs.rglob("rank-*.out")] == ["True\n"] * 2
    assert list(place.runs.rglob("fork-server.log")) == []
    logs = [path.read_text() for path in place.runs.rglob("agents/local-?.log")]
    assert len(logs) == 2
    assert not any("pool.not_forked" in log or "fork_server.given_up" in log for log in logs)

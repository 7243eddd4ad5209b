"""Which local runs there are: the views open their sources anew when the answer changes."""

from pathlib import Path

from elasticd.cli.views.runs import which_runs
from elasticd.control.local_run.run_folder import JobFolder
from elasticd.records.ids import JobName


def test_answer_changes_at_each_step_of_a_run(tmp_path: Path) -> None:
    """Before its etcd ends, so that nobody asks that in vain; a cluster is always the same one."""
    values = {"log_dir": str(tmp_path)}
    folder = JobFolder(tmp_path, JobName("j"))
    answers = [which_runs(values)]
    folder.take()
    answers.append(which_runs(values))
    folder.write_endpoint("unix:///tmp/e")
    answers.append(which_runs(values))
    folder.remove_endpoint()
    answers.append(which_runs(values))
    folder.release()
    answers.append(which_runs(values))
    assert answers[1] == answers[3], "its records are there, and it still holds its folder"
    assert len(set(answers)) == 4
    assert which_runs({**values, "etcd": "http://a:2379"}) == ()

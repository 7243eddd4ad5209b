"""What a call of `elasticd run` means: torchrun's flags in both spellings, and ours."""

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli.run.request import Mode, parse
from elasticd.cli.run.script import default_job_name
from elasticd.control.logs.console import ERR, OUT
from elasticd.errors import CallError, NotSupported
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind

ETCD = ["--etcd", "http://a:2379,http://b:2379"]


def test_a_bare_script_runs_here_on_one_node_with_one_worker() -> None:
    """torchrun's defaults, but for three restarts."""
    request = parse(["train.py"], {})
    assert request.mode is Mode.LOCAL
    assert (request.draft.min_nodes, request.draft.max_nodes, request.draft.workers_per_node) == (
        1,
        1,
        1,
    )
    assert (request.draft.entry_kind, request.draft.entry, request.draft.args) == (
        EntryKind.SCRIPT,
        "train.py",
        (),
    )
    assert request.draft.limits.user_error == 3


def test_everything_behind_the_script_belongs_to_the_script() -> None:
    """Also what looks like a flag of ours, a second `--`, and a help flag."""
    request = parse(["train.py", "--nnodes", "9", "-m", "--", "--help"], {})
    assert request.draft.args == ("--nnodes", "9", "-m", "--", "--help")
    assert request.draft.max_nodes == 1


@pytest.mark.parametrize("flag", ["--nproc-per-node", "--nproc_per_node"])
def test_flags_are_taken_with_dashes_and_underscores(flag: str) -> None:
    """As torchrun does for every flag."""
    assert parse([flag, "3", "train.py"], {}).draft.workers_per_node == 3
    assert parse([f"{flag}=3", "train.py"], {}).draft.workers_per_node == 3


def test_a_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    """PET_<NAME> for torchrun's flags, ELASTICD_<NAME> for ours."""
    environ = {"PET_NNODES": "1:3", "PET_MAX_RESTARTS": "7", "ELASTICD_LOCAL_AGENTS": "2"}
    assert parse(["train.py"], environ).draft.max_nodes == 3
    assert parse(["--nnodes", "1:2", "train.py"], environ).draft.max_nodes == 2
    assert parse(["train.py"], environ).draft.limits.user_error == 7
    assert parse(["train.py"], environ).local_agents == 2
    assert parse(["train.py"], {}).local_agents == 1


def test_a_switch_in_the_environment_is_off_when_it_is_zero() -> None:
    """PET_MODULE=0 is torchrun's way to say no."""
    assert parse(["x"], {"PET_MODULE": "1"}).draft.entry_kind is EntryKind.MODULE
    assert parse(["x"], {"PET_MODULE": "0"}).draft.entry_kind is EntryKind.SCRIPT


def test_what_becomes_of_a_late_node_is_one_of_two() -> None:
    """It is named, if nothing else was said; another word is refused with those that there are."""
    late = [
        parse(given, {}).spec(name=JobName("j"), uid="u", here="/").on_late
        for given in (["t.py"], ["--on-late", "drain", "t.py"])
    ]
    assert late == ["report", "drain"]
    with pytest.raises(CallError, match="--on-late evict is none of report, drain"):
        parse(["--on-late", "evict", "t.py"], {})


@pytest.mark.parametrize("nnodes", ["4:2", "0", "x", "0:2", "1:2:3", "", "-1", "1:", "1.5"])
def test_an_impossible_number_of_nodes_is_refused(nnodes: str) -> None:
    """In one sentence that shows what was written."""
    with pytest.raises(CallError, match="--nnodes"):
        parse([f"--nnodes={nnodes}", "train.py"], {})


def test_several_local_agents_may_run_with_fewer() -> None:
    """So that losing one goes on with the others; `--nnodes` says otherwise."""
    request = parse(["--local-agents", "3", "train.py"], {})
    assert (request.draft.min_nodes, request.draft.max_nodes) == (1, 3)
    request = parse(["--local-agents", "3", "--nnodes", "2:3", "train.py"], {})
    assert (request.draft.min_nodes, request.draft.max_nodes) == (2, 3)


def test_more_nodes_than_local_agents_is_refused_with_what_to_do() -> None:
    """Two nodes of torchrun's are two agents here."""
    with pytest.raises(CallError, match="--local-agents 2"):
        parse(["--nnodes", "2", "train.py"], {})


def test_more_workers_than_slots_is_refused() -> None:
    """Whoever gives both means both."""
    with pytest.raises(CallError, match="--slots 2"):
        parse(["--nproc-per-node", "4", "--slots", "2", "train.py"], {})


def test_auto_takes_the_gpus_else_the_cpus() -> None:
    """As torchrun counts them."""
    assert (
        parse(["--nproc-per-node", "auto", "t.py"], {}, gpus=4, cpus=8).draft.workers_per_node == 4
    )
    assert (
        parse(["--nproc-per-node", "auto", "t.py"], {}, gpus=0, cpus=8).draft.workers_per_node == 8
    )
    assert (
        parse(["--nproc-per-node", "cpu", "t.py"], {}, gpus=4, cpus=8).draft.workers_per_node == 8
    )
    assert parse(["--nproc-per-node", "gpu", *ETCD, "t.py"], {}).draft.workers_per_node == 0
    with pytest.raises(CallError, match="no GPU of NVIDIA"):
        parse(["--nproc-per-node", "gpu", "t.py"], {})
    with pytest.raises(NotSupported, match="xpu"):
        parse(["--nproc-per-node", "xpu", "t.py"], {})


def test_etcd_submits_to_daemons_and_join_brings_this_host() -> None:
    """--standalone overrides an etcd that stands in the environment."""
    assert parse([*ETCD, "t.py"], {}).mode is Mode.SUBMIT
    assert parse([*ETCD, "--join", "--job", "j", "t.py"], {}).mode is Mode.JOIN
    environ = {"ELASTICD_ETCD": "http://a:2379"}
    assert parse(["t.py"], environ).mode is Mode.SUBMIT
    assert parse(["--standalone", "t.py"], environ).mode is Mode.LOCAL


def test_torchruns_etcd_rendezvous_is_a_join() -> None:
    """The same call on every host, as with torchrun."""
    flags = ["--rdzv-backend", "etcd-v2", "--rdzv-endpoint", "h:2379", "--rdzv-id", "j"]
    request = parse([*flags, "t.py"], {})
    assert request.mode is Mode.JOIN
    assert request.job == JobName("j")
    assert request.store is not None and request.store.endpoints == ("http://h:2379",)


C10D = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "host0:29400", "--rdzv-id", "q"]


@pytest.mark.parametrize(
    "flags", [C10D, ["--node-rank", "0", "--master-addr", "host0"], ["--rdzv-endpoint", "h:1"]]
)
def test_hosts_that_would_not_find_each_other_are_refused(flags: list[str]) -> None:
    """torchrun's call on each host: each would train a world of one, over the others' files."""
    job = "q" if flags is C10D else "NAME"
    with pytest.raises(CallError, match=f"--join --etcd http://HOST:2379 --job {job} --nnodes 1:2"):
        parse([*flags, "--nnodes", "1:2", "t.py"], {})


@pytest.mark.parametrize(
    "flags",
    [
        [*C10D, "--nnodes", "1"],
        [*C10D, "--nnodes", "1:2", "--local-agents", "2"],
        [*C10D, "--nnodes", "1:2", "--standalone"],
        ["--nnodes", "1:2"],
    ],
)
def test_one_machine_alone_may_be_called_as_torchrun_is(flags: list[str]) -> None:
    """What its rendezvous would need is said to have no effect."""
    request = parse([*flags, "t.py"], {})
    assert request.mode is Mode.LOCAL
    assert any("--rdzv-backend c10d" in note for note in request.notes) == ("c10d" in flags)


def test_join_needs_a_name_and_an_etcd() -> None:
    """Or the hosts would not find each other."""
    with pytest.raises(CallError, match="--job"):
        parse([*ETCD, "--join", "t.py"], {})
    with pytest.raises(CallError, match="--etcd"):
        parse(["--join", "--job", "j", "t.py"], {})


def test_torchruns_default_run_id_is_no_name() -> None:
    """`--rdzv-id none` would make all jobs one."""
    assert parse(["--rdzv-id", "none", "t.py"], {}).job is None


def test_flags_without_a_meaning_here_are_taken_with_a_reason() -> None:
    """One line each; what torchrun takes must not end the run."""
    flags = ["--rdzv-backend", "c10d", "--monitor-interval", "1", "--node-rank", "0"]
    flags += ["--master-addr", "h", "--master-port", "1", "--start-method", "spawn"]
    flags += ["--numa-binding", "node", "--rdzv-conf", "timeout=9,join_timeout=77"]
    request = parse([*flags, "t.py"], {})
    assert len(request.notes) == 8
    assert all("no effect" in note for note in request.notes)
    assert request.draft.formation_timeout_s == 77.0


def test_a_virtual_local_rank_is_refused_not_ignored() -> None:
    """A script that relies on it would train on the wrong device."""
    with pytest.raises(NotSupported, match="LOCAL_RANK"):
        parse(["--virtual-local-rank", "t.py"], {})


def test_another_interpreter_runs_as_a_command() -> None:
    """PYTHON_EXEC, as in torchrun; the warm pool is the agent's own interpreter."""
    request = parse(["-m", "pkg.train", "--lr", "1"], {"PYTHON_EXEC": "/bin/sh"})
    assert (request.draft.entry_kind, request.draft.entry) == (EntryKind.COMMAND, "/bin/sh")
    assert request.draft.args == ("-u", "-m", "pkg.train", "--lr", "1")
    with pytest.raises(CallError, match="/nowhere/python"):
        parse(["--python", "/nowhere/python", "t.py"], {})


def test_module_and_no_python_contradict_each_other() -> None:
    """As in torchrun."""
    with pytest.raises(CallError, match="contradict"):
        parse(["-m", "--no-python", "x"], {})
    assert parse(["--no-python", "x"], {}).draft.entry_kind is EntryKind.COMMAND


def test_the_environment_of_workers_is_only_what_was_named() -> None:
    """A bare name copies the submitter's value."""
    request = parse(["--env", "A=1", "--env", "B", "t.py"], {"B": "2", "SECRET": "x"})
    assert request.draft.env == {"A": "1", "B": "2"}
    with pytest.raises(CallError, match="'C'"):
        parse(["--env", "C", "t.py"], {})


def test_torchruns_stream_flags_choose_what_is_shown() -> None:
    """By local rank, over all nodes."""
    console = parse(["-t", "0:1,1:2", "-r", "3", "t.py"], {}).console
    assert console.streams(0, 0) == OUT
    assert console.streams(5, 1) == ERR
    assert console.streams(6, 2) == 0
    with pytest.raises(CallError, match="--tee"):
        parse(["--tee", "5", "t.py"], {})


def test_the_shutdown_timeout_has_torchruns_variable() -> None:
    """Flag, PET_ form, torchrun's own variable, default."""
    environ = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}
    assert parse(["t.py"], environ).draft.shutdown_timeout_s == 7.0
    assert parse(["--shutdown-timeout", "1", "t.py"], environ).draft.shutdown_timeout_s == 1.0
    assert parse(["t.py"], {}).draft.shutdown_timeout_s == 30.0


@pytest.mark.parametrize(
    ("flags", "environ", "named"),
    [
        (["--rdzv-conf", "join_timeout=abc"], {}, "--rdzv-conf join_timeout"),
        (["--rdzv-conf", "last_call_timeout=abc"], {}, "--rdzv-conf last_call_timeout"),
        ([], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "abc"}, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"),
        (
            ["--formation-timeout", "abc", "--rdzv-conf", "join_timeout=9"],
            {},
            "--formation-timeout",
        ),
    ],
)
def test_what_is_wrong_is_named_as_it_was_given(
    flags: list[str], environ: dict[str, str], named: str
) -> None:
    """The flag of ours was blamed that has the same meaning, and that nobody had written."""
    with pytest.raises(CallError) as caught:
        parse([*flags, "t.py"], environ)
    assert str(caught.value) == f"{named} abc is not a number of seconds."


@pytest.mark.parametrize("flags", [[], ["--python", sys.executable], [*ETCD, "--cwd", "/x"]])
def test_a_path_is_no_module(flags: list[str]) -> None:
    """Whether a file is there or not: the job started, failed, was started again and failed."""
    with pytest.raises(CallError) as caught:
        parse([*flags, "-m", "pkg/train.py"], {})
    assert str(caught.value) == (
        "-m pkg/train.py is a path, and -m takes the name of a module: write elasticd run "
        "pkg/train.py, or -m with dots and without the ending .py."
    )
    assert parse(["--run-path", "-m", "pkg/train.py"], {}).draft.entry == "pkg/train.py"


@pytest.mark.parametrize(
    "flags",
    [
        ["--max-restarts", "-1"],
        ["--max-restarts", "many"],
        ["--lease-ttl", "1"],
        ["--lease-ttl", "1e300"],
        ["--join-window", "-1"],
        ["--isolation-limit", "nan"],
        ["--signals-to-handle", "SIGKILL"],
        ["--signals-to-handle", "TERM"],
        ["--signals-to-handle", "SIGTERM,SIGCHLD"],
        ["--signals-to-handle", "SIGCLD"],
        ["--signals-to-handle", "SIGPIPE"],
        ["--signals-to-handle", "SIGSEGV"],
        ["--start-method", "thread"],
        ["--job", "a/b"],
        ["--local-agents", "0"],
        ["--local-ranks-filter", "a"],
        ["--rdzv-conf", "x"],
        ["--detach"],
        ["--etcd", "nonsense"],
        ["--etcd", "http://a:1,https://b:1"],
        ["--etcd", "http://a:1", "--local-agents", "2"],
        ["--etcd", "https://a:1", "--etcd-cert", "c"],
        ["--etcd", "http://a:1", "--etcd-user", "u"],
        ["--node-label", "gpu=h100"],
        ["--node-label", "gpu=h100", *ETCD, "--join", "--job", "j"],
        ["--node-label", "h100", *ETCD],
        ["--node-label", "gpu=a100", "--node-label", "gpu=h100", *ETCD],
        ["--priority", "3"],
        ["--priority", "3", *ETCD, "--join", "--job", "j"],
        ["--priority", "high", *ETCD],
        ["--priority", "2147483648", *ETCD],
        ["--priority", "9" * 5000, *ETCD],
    ],
)
def test_bad_values_are_refused_in_one_sentence(flags: list[str]) -> None:
    """Each names the flag."""
    with pytest.raises(CallError, match=flags[0].replace("--signals-to-handle", "--signals")):
        parse([*flags, "t.py"], {})


def test_labels_of_nodes_go_into_the_job() -> None:
    flags = ["--node-label", "gpu=h100", "--node-label", "zone=", *ETCD, "t.py"]
    spec = parse(flags, {}).spec(name=JobName("j"), uid="u", here="/")
    assert spec.node_labels == {"gpu": "h100", "zone": ""}


def test_a_priority_goes_into_the_job() -> None:
    for given, priority in (([], 0), (["--priority", "-7"], -7), (["--priority=10"], 10)):
        spec = parse([*given, *ETCD, "t.py"], {}).spec(name=JobName("j"), uid="u", here="/")
        assert spec.priority == priority


def test_a_spec_says_local_unless_daemons_run_it() -> None:
    """Daemons leave local jobs alone; each joining host uses its own folders."""
    for args, is_local, cwd in (
        (["t.py"], True, "/here"),
        ([*ETCD, "t.py"], False, "/here"),
        ([*ETCD, "--join", "--job", "j", "t.py"], True, ""),
    ):
        spec = parse(args, {}).spec(name=JobName("j"), uid="u", here="/here")
        assert (spec.is_local, spec.cwd) == (is_local, cwd)


def test_a_password_is_read_from_a_file_or_the_environment(tmp_path: Path) -> None:
    """Never from a flag, which anybody on the machine could read."""
    environ = {"ELASTICD_ETCD_PASSWORD": "secret"}
    store = parse([*ETCD, "--etcd-user", "u", "t.py"], environ).store
    assert store is not None and store.password == "secret"
    assert "secret" not in repr(store)
    file = tmp_path / "password"
    file.write_text("other\n")
    flags = [*ETCD, "--etcd-user", "u", "--etcd-password-file", str(file)]
    store = parse([*flags, "t.py"], environ).store
    assert store is not None and store.password == "other"


def test_our_variable_for_the_run_folder_wins_over_torchruns() -> None:
    """In `run` as in the commands that look for what it left."""
    environ = {"PET_LOG_DIR": "theirs", "ELASTICD_LOG_DIR": "ours"}
    assert parse(["train.py"], environ).run_folder == "ours"
    assert parse(["--log-dir", "flag", "train.py"], environ).run_folder == "flag"
    assert parse(["train.py"], {"PET_LOG_DIR": "theirs"}).run_folder == "theirs"


def test_two_submissions_in_one_second_get_two_names() -> None:
    """Of a cluster nobody can look into all run folders."""
    request = parse(["--etcd", "http://a:1", "train.py"], {})
    names = {default_job_name(request.draft, "1122-1200", None, unique) for unique in ("a1", "b2")}
    assert names == {"train-1122-1200-a1", "train-1122-1200-b2"}


def test_name_is_made_up_also_where_the_run_folder_is_another_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be written there is told by whoever makes the folder, with --log-dir."""
    real = os.stat

    def refuse(path: Any, **more: Any) -> os.stat_result:
        if str(path).startswith(str(tmp_path)):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, **more)

    with monkeypatch.context() as refusing:
        refusing.setattr(os, "stat", refuse)
        name = default_job_name(parse(["train.py"], {}).draft, "1122-1200", tmp_path / "runs")
    assert name == "train-1122-1200"


def test_silence_is_not_looked_for_unless_a_limit_is_given() -> None:
    """A script that prints nothing is no less well; below what can be seen it is refused."""
    assert parse(["t.py"], {}).draft.output_timeout_s == 0.0
    request = parse(["--output-timeout", "300", "t.py"], {})
    assert request.spec(name=JobName("j"), uid="u", here="/").output_timeout_s == 300.0
    for text, words in (("2", "below 5 seconds"), ("-1", "not a duration"), ("x", "not a number")):
        with pytest.raises(CallError, match=f"--output-timeout {text} is .*{words}"):
            parse(["--output-timeout", text, "t.py"], {})


@pytest.mark.parametrize(
    ("text", "nbytes"), [("1048576", 1 << 20), ("100M", 100 << 20), ("2g", 2 << 30)]
)
def test_room_for_logs_is_a_size(text: str, nbytes: int) -> None:
    """Of each stream of a rank; any without the flag."""
    request = parse(["--log-max", text, "t.py"], {})
    assert request.spec(name=JobName("j"), uid="u", here="/").log_max_bytes == nbytes
    assert parse(["t.py"], {}).draft.log_max_bytes == 0


@pytest.mark.parametrize(
    ("text", "words"), [("10", "below 1048576"), ("100MB", "not a size"), ("-1M", "not a size")]
)
def test_room_that_is_none_is_refused(text: str, words: str) -> None:
    """With how to write it."""
    with pytest.raises(CallError, match=f"--log-max {text} is .*{words}"):
        parse(["--log-max", text, "t.py"], {})


@pytest.mark.parametrize(
    ("flags", "preload", "learns"),
    [
        ([], (), True),
        (["--preload", "auto"], (), True),
        (["--preload", "none"], (), False),
        (["--preload", "a,b.c"], ("a", "b.c"), False),
        (["--preload", "auto,a"], ("a",), True),
    ],
)
def test_what_the_pool_imports_is_learned_unless_something_else_is_asked_for(
    flags: list[str], preload: tuple[str, ...], learns: bool
) -> None:
    """Names alone mean these and no others."""
    spec = parse([*flags, "t.py"], {}).spec(name=JobName("j"), uid="1", here="/w")
    assert (spec.preload, spec.learns_imports) == (preload, learns)


def test_program_with_a_flag_like_an_interpreters_has_a_name_too() -> None:
    """`-u` is not only Python's."""
    for args, name in (
        (["--no-python", "cat", "-u"], "cat-1122-1200"),
        (["--no-python", "cat", "-u", "-m"], "cat-1122-1200"),
        (["--python", sys.executable, "train.py"], "train-1122-1200"),
        (["--python", sys.executable, "-m", "some.train"], "some-1122-1200"),
    ):
        assert default_job_name(parse(args, {}).draft, "1122-1200", None) == name

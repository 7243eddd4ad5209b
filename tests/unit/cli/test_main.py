"""How the command line answers: one plain sentence, the right exit code, no traceback."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.cli.main import COMMANDS, main
from elasticd.control.local_run.archive import archive
from elasticd.control.local_run.run_folder import JobFolder
from elasticd.records.job import JobStatus
from elasticd.records.reason import Phase
from elasticd.store.memory import MemoryStore
from tests.fixtures.patience import patience_s
from tests.unit.control.world_case import JOB, KEYS, SPEC, put


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"x" * ((64 << 10) + 1))
    (tmp_path / "folder").mkdir()
    (tmp_path / "policy.toml").write_text("[goodput]")
    return tmp_path


LONG = "9" * 5_000
"""More digits than Python's own `int` reads."""

BAD_CALLS = [
    (["run"], "No script was given"),
    (["run", "/dev/null"], "/dev/null is no regular file"),
    (["run", "nope.py"], "nope.py was not found"),
    (["run", "folder"], "folder is a folder"),
    (["run", "--no-python", "no-such-program"], "was not found on PATH"),
    (["run", "--no-python", "./train.py"], "cannot be executed"),
    (["run", "--nnodes", "4:2", "train.py"], "--nnodes 4:2: MIN, 4, is above MAX, 2"),
    (["run", "--nnodes", "0", "train.py"], "--nnodes 0: a job has at least 1 node."),
    (["run", "--nnodes", "x", "train.py"], "--nnodes x"),
    (["run", "--nnodes", "²", "train.py"], "--nnodes ²"),
    (["run", "--nproc-per-node", "²", "train.py"], "--nproc-per-node ²"),
    (["run", "--nproc-per-node", "4", "--slots", "2", "train.py"], "--slots 2"),
    (["run", "--log-dir", "/proc/nope", "train.py"], "--log-dir"),
    (["run", "--nproc", "2", "train.py"], "Did you mean '--nproc-per-node'? See `"),
    (["run", "--no-such-flag", "train.py"], "elasticd run --help"),
    (
        ["run", "--chekpoint", "ck", "train.py"],
        "Did you mean '--checkpoint' or '--checkpoint-keep'? See `",
    ),
    (["top", "--onec"], "Did you mean '--once'? See `elasticd top --help`."),
    (["status", "--job", "j"], "No such option '--job': see `elasticd status --help`."),
    (["run", "--checkpoint", "s3:bucket/x", "train.py"], "give s3://bucket/x, or ./s3:bucket/x"),
    (["run", "--tensorboard", "gs:/bucket/x", "train.py"], "--tensorboard gs:/bucket/x is no URL"),
    (["run", "--checkpoint", "file:/ck", "train.py"], "give the path without a scheme"),
    (["run", "--bundle", "s3:bucket/x", "train.py"], "--bundle s3:bucket/x is no URL"),
    (["bundle", "j", "--to", "s3:bucket/x"], "--to s3:bucket/x is no URL"),
    (["bundle", "j", "--to", "memory://x"], "--to memory://x is the memory of one process"),
    (["checkpoint", "ls", "S3:bucket/x"], "URL S3:bucket/x is no URL"),
    (["checkpoint", "ls", "memory://x"], "URL memory://x is the memory of one process"),
    (["run", "--lr", "0.1", "train.py"], "Flags of the script itself come after it: `elasticd run"),
    (["statis"], "No such command 'statis'. Did you mean 'status'? See `elasticd --help`."),
    (["frobnicate"], "No such command 'frobnicate': see `elasticd --help`."),
    (["status", "a", "b", "c"], "arguments (b c): see `elasticd status --help`."),
    (["run", "--etcd", "http://127.0.0.1:1", "train.py"], "http://127.0.0.1:1"),
    (["run", "--etcd", "https://a:1", "--etcd-cacert", "/nope", "train.py"], "/nope"),
    (
        ["run", "--autoscale", "nope.toml", "--nnodes", "1:2", "train.py"],
        "no policy file 'nope.toml'",
    ),
    (["run", "--autoscale", "train.py", "--nnodes", "1:2", "train.py"], "train.py is not TOML"),
    (["run", "--autoscale", "policy.toml", "train.py"], "runs on exactly 1 node"),
    (
        ["run", "--join", "--job", "j", "--etcd", "http://a:1", "--autoscale", "p", "train.py"],
        "--autoscale is not for --join",
    ),
    (["agent"], "--etcd"),
    (["agent", "--etcd", "http://a:1", "--slots", "many"], "--slots many"),
    (["agent", "--etcd", "http://a:1", "--slots", "²"], "--slots ²"),
    (["agent", "--etcd", "http://a:1", "--lease-ttl", "1"], "--lease-ttl 1"),
    (["agent", "--etcd", "http://a:1", "--node-id", "a/b"], "--node-id"),
    (["agent", "--etcd", "http://a:1", "--label", "x"], "--label"),
    (["status"], "no local run"),
    (["status", "nope"], "no local run 'nope'"),
    (["status", "nope", "--etcd", "http://127.0.0.1:1"], "http://127.0.0.1:1"),
    (["why", "--etcd", "http://127.0.0.1:1"], "Name the job"),
    (["stop"], "JOB"),
    (["prune"], "--etcd"),
    (["prune", "a/b", "--etcd", "http://127.0.0.1:1"], "job 'a/b'"),
    (
        ["agent", "--etcd", "http://a:1", "--keep-ended", "-1"],
        "--keep-ended -1 is not a number, 0 or more",
    ),
    (["scale", "nope", "0"], "0 is below 1, the least that makes sense"),
    (["scale", "nope", "two"], "'two' is not a whole number"),
    (["logs", "nope", "--rank", ""], "'' is not a whole number"),
    (["checkpoint", "show", "folder", "--step", "-1"], "-1 is below 0"),
    (["nonsense"], "nonsense"),
    (["run", "--checkpoint", "", "train.py"], "'--checkpoint': it is empty"),
    (["run", "--job", "", "train.py"], "'--job': it is empty"),
    (["run", "--formation-timeout", "0", "train.py"], "0 is not a duration in seconds, 1 or more"),
    (["run", "--etcd", "", "train.py"], "'--etcd': it is empty"),
    (["status", "--etcd", ""], "'--etcd': it is empty"),
    (["agent", "--etcd", "http://a:1", "--event-log", "train.py"], "another --event-log"),
    (["agent", "--etcd", "http://a:1", "--job", ""], "'--job': it is empty"),
    (
        ["status", "--etcd", "http://127.0.0.1:1", "--etcd-password-file", "bytes"],
        "--etcd-password-file bytes is not text in UTF-8",
    ),
    (
        ["status", "--etcd", "http://127.0.0.1:1", "--etcd-password-file", "large"],
        "--etcd-password-file large has more than 64 KiB",
    ),
    (
        ["status", "--etcd", "https://127.0.0.1:1", "--etcd-cacert", "/dev/zero"],
        "--etcd-cacert /dev/zero is a device: give a file",
    ),
    (["status", "--etcd", f"http://a:{LONG}"], "is not an endpoint: write http://HOST:PORT"),
    (["status", "--etcd", "http://a:65536"], "'http://a:65536' is not an endpoint"),
    (["scale", "nope", LONG], "999' has more than 15 digits"),
    (["run", "--nproc-per-node", LONG, "train.py"], "999 is not a number above 0"),
    (["run", "--nnodes", f"1:{LONG}", "train.py"], "999 is neither a number nor a range"),
    (["run", "--max-restarts", LONG, "train.py"], "999 has more than 15 digits"),
    (["run", "--log-max", f"{LONG}G", "train.py"], "is not a size"),
    (["agent", "--etcd", "http://a:1", "--slots", LONG], "999 is not a number above 0 or `auto`"),
    (["agent", "--etcd", "http://a:1", "--http-port", LONG], "999 is not a port"),
    (
        ["agent", "--etcd", "http://a:1", "--local-addr", "a" * 64],
        "aaa' is no host name and no address, as in 10.0.0.7",
    ),
    (
        [
            "run",
            "--etcd",
            "http://a:1",
            "--join",
            "--job",
            "j",
            "--local-addr",
            "http://a",
            "train.py",
        ],
        "--local-addr 'http://a' is no host name and no address",
    ),
    (["doctor", "--local-addr", "a b"], "--local-addr 'a b' is no host name and no address"),
]


@pytest.mark.parametrize(("argv", "said"), BAD_CALLS)
def test_a_wrong_call_is_answered_in_one_sentence_with_exit_code_2(
    argv: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """On stderr, with the value that was wrong; nothing on stdout."""
    assert main(argv) == 2
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("elasticd: ") and shown.err.count("\n") == 1
    assert said in shown.err


def test_a_file_is_no_module(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Python would say so in the worker, after its start and one restart; other names are its."""
    (here / "train.py").write_text("pass")
    assert main(["run", "--dry-run", "-m", "train.py"]) == 2
    assert capfd.readouterr().err == (
        "elasticd: -m train.py names a file, and -m takes the name of a module: leave out -m, or "
        "the ending .py.\n"
    )
    assert main(["run", "--dry-run", "-m", "train"]) == 0
    assert main(["run", "--dry-run", "-m", "pkg.py"]) == 0, "a module that is called py"


def test_a_script_that_cannot_be_read_is_said(here: Path) -> None:
    """root can read everything, so this runs as nobody where it can."""
    code = (
        "import os, sys; from elasticd.cli.run.script import check_entry; from pathlib import Path;"
        "from elasticd.cli.run.request import parse; request = parse(['t.py'], {});"
        "os.getuid() == 0 and os.setuid(65534); check_entry(request, Path(sys.argv[1]))"
    )
    folder = Path("/tmp") / f"elasticd-{here.name}"
    folder.mkdir(mode=0o755, exist_ok=True)
    script = folder / "t.py"
    script.write_text("pass")
    script.chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
        )
    finally:
        script.unlink()
        folder.rmdir()
    assert "cannot be read" in done.stderr


def test_a_dry_run_prints_the_spec_and_starts_nothing(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not even the run folder is made."""
    assert main(["run", "--dry-run", "--nnodes", "1:1", "train.py", "--lr", "1"]) == 0
    spec = json.loads(capfd.readouterr().out)
    assert (spec["entry"], spec["args"]) == ("train.py", ["--lr", "1"])
    assert not (here / "elasticd-runs").exists()


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    """And is found where the table says."""
    assert main([command, "--help"]) == 0
    assert "Usage: elasticd" in capfd.readouterr().out


def test_an_ended_local_run_is_still_told_of(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """From its records, after the private etcd is gone."""
    store = MemoryStore()
    put(store, KEYS.spec(JOB), SPEC)
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.FAILED, message="It broke."))
    folder = JobFolder(here / "elasticd-runs", JOB)
    folder.path.mkdir(parents=True)
    archive(store.list(KEYS.root).items, folder.records)
    for argv in (["status"], ["status", JOB], ["why"], ["status", "--json"], ["why", "--json"]):
        assert main(argv) == 0
        assert "It broke" in capfd.readouterr().out
    assert main(["stop", JOB]) == 2
    assert "is over" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        ("", 0, ""),
        (">/dev/full", 1, "elasticd: The system refused a call (No space left on device)"),
        (">/dev/full 2>&1", 1, ""),
        (">&- 2>&-", 0, ""),
        ("| true", None, ""),
    ],
)
def test_what_cannot_be_printed_is_no_traceback(streams: str, code: int | None, said: str) -> None:
    """Called as torchrun's users do, with `python -m`."""
    shown = f"{sys.executable} -m elasticd --help {streams}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", shown], capture_output=True, text=True, timeout=patience_s(60.0), check=False
    )
    # The reader of a pipe may be gone before or after it is written to: a shell says 141 then.
    assert done.returncode in ((0, 128 + signal.SIGPIPE) if code is None else (code,))
    assert done.stderr.startswith(said) and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == bool(said)


def test_what_is_no_text_is_shown_escaped(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A script may raise an exception with the name of any file."""
    store = MemoryStore()
    put(store, KEYS.spec(JOB), SPEC)
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.FAILED, message="'\udcff.jpg' is gone"))
    folder = JobFolder(here / "elasticd-runs", JOB)
    folder.path.mkdir(parents=True)
    archive(store.list(KEYS.root).items, folder.records)
    for argv in (["status"], ["why"]):
        assert main(argv) == 0
        assert "'\\udcff.jpg' is gone" in capfd.readouterr().out


def test_the_agents_way_in_is_light() -> None:
    """Half a second from start to registered leaves no room for torch, rich or kubernetes."""
    code = (
        "import sys; from elasticd.cli.main import main;"
        "main(['agent', '--etcd', 'http://a:1', '--slots', 'x']);"
        "print([n for n in ('torch', 'rich', 'kubernetes', 'grpc') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=patience_s(60.0),
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "call",
    [["--version"], ["run", "--help"], ["status"], ["status", JOB], ["top", "--once"], ["nodes"]],
    ids=" ".join,
)
def test_reader_of_a_pipe_that_has_gone_is_told_as_a_shell_tells_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, call: list[str]
) -> None:
    """As in `elasticd status JOB | head -1`. click and rich each end the process with 1."""
    store, folder = MemoryStore(), JobFolder(here / "elasticd-runs", JOB)
    put(store, KEYS.spec(JOB), SPEC)
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.SUCCEEDED))
    folder.path.mkdir(parents=True)
    archive(store.list(KEYS.root).items, folder.records)
    reading, writing = os.pipe()
    os.close(reading)
    with monkeypatch.context() as patch:
        pipe = os.fdopen(writing, "w")
        patch.setattr(sys, "stdout", pipe)
        assert main(call) == 128 + signal.SIGPIPE
        assert sys.stdout is pipe
        pipe.close()  # Nothing is left in it that would fail.

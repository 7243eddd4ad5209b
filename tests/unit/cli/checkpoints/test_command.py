"""`elasticd checkpoint`: what it prints, what it refuses, and with which exit code."""

import json
import os
import subprocess
import sys
import time
import uuid
from contextlib import nullcontext
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.committer import read_manifest
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.format.entry import LogEntry
from elasticd.checkpoint.format.layout import entry_name
from elasticd.checkpoint.format.manifest import Manifest
from elasticd.checkpoint.retention.deletion import remove
from elasticd.checkpoint.storage.bucket import ReadableBucket
from elasticd.cli.checkpoints import bucket, show
from elasticd.cli.checkpoints.command import COMMANDS
from elasticd.cli.main import main
from tests.fixtures.patience import patience_s
from tests.unit.checkpoint.records import changed
from tests.unit.checkpoint.stock_case import Maker

Shown = pytest.CaptureFixture[str]


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    """Four checkpoints: numbers 2 to 5, steps 10 to 40."""
    return Maker.of(tmp_path / "run", steps=4)


def call(capfd: Shown, *argv: str) -> tuple[int, str, str]:
    code = main(["checkpoint", *argv])
    shown = capfd.readouterr()
    return code, shown.out, shown.err


def test_ls_is_a_table_newest_first(maker: Maker, capfd: Shown) -> None:
    """A plain path is a URL too."""
    code, out, err = call(capfd, "ls", maker.url.removeprefix("file://"))
    rows = [line.split() for line in out.splitlines() if line.strip()][2:]
    assert (code, err) == (0, "")
    assert [row[:4] for row in rows] == [
        ["5", "40", "1", "1"],
        ["4", "30", "1", "1"],
        ["3", "20", "1", "1"],
        ["2", "10", "1", "1"],
    ]
    assert rows[0][4:6] == ["1.72", "MiB"] and rows[0][-1] == "2"


def test_ls_for_programs(maker: Maker, capfd: Shown) -> None:
    """One document, with what the table has."""
    code, out, _ = call(capfd, "ls", maker.url, "--json")
    found = json.loads(out)
    assert code == 0 and [each["number"] for each in found] == [5, 4, 3, 2]
    assert {"step": 40, "run": 1, "generation": 1, "world_size": 2, "damage": ""}.items() <= (
        found[0].items()
    )
    assert abs(found[0]["at_unix_s"] - time.time()) < 100


def test_ls_shows_damage(maker: Maker, tmp_path: Path, capfd: Shown) -> None:
    """A manifest in the table, an entry of the log on stderr."""
    (tmp_path / "run" / maker.log.entry(3).snapshot.manifest).unlink()
    (tmp_path / "run" / entry_name(2)).write_bytes(b"?")
    code, out, err = call(capfd, "ls", maker.url)
    assert code == 0 and "damaged" in out and "checkpoint 2" in err
    code, out, _ = call(capfd, "ls", maker.url, "--json")
    assert [each["number"] for each in json.loads(out) if each["damage"]] == [3]


def test_show_names_tensors_and_values(maker: Maker, capfd: Shown) -> None:
    """Of the newest, or of the one that is asked for."""
    code, out, _ = call(capfd, "show", maker.url)
    assert code == 0 and "checkpoint 5, step 40" in out and "world size 2" in out
    assert "6 tensors" in out and "[300, 1000]" in out and "bfloat16" in out
    assert "8 plain values" in out and "state.optimizer.param_groups[0].lr" in out
    assert "checkpoint 3, step 20" in call(capfd, "show", maker.url, "3")[1]
    assert "checkpoint 3, step 20" in call(capfd, "show", maker.url, "--step", "20")[1]


def test_show_for_programs(maker: Maker, capfd: Shown) -> None:
    """Nested as the state is, with the tensors' names in their places."""
    code, out, _ = call(capfd, "show", maker.url, "3", "--json")
    found = json.loads(out)
    assert code == 0 and (found["number"], found["step"]) == (3, 20)
    assert found["state"]["model"]["bias"] == {"tensor": "state.model.bias"}
    assert found["state"]["worst"] == "-inf"
    assert found["tensors"][1] == {
        "name": "state.model.bias",
        "dtype": "float32",
        "shape": [7],
        "nbytes": 28,
    }


def test_show_shortens_what_is_long(maker: Maker, capfd: Shown) -> None:
    """And says how to see the rest."""
    import torch

    tensors = {f"w{index}": torch.ones(1) for index in range(25)}
    maker.save(50, {"model": tensors, "steps": list(range(30)), "text": "x" * 1000})
    _, out, _ = call(capfd, "show", maker.url)
    assert "w19" in out and "w20" not in out and "steps[20]" not in out
    assert "and 5 more tensors: --all shows them" in out and "and 11 more values" in out
    _, out, _ = call(capfd, "show", maker.url, "--all")
    assert "w24" in out and "steps[29]" in out and "x" * 300 not in out and "more" not in out


def test_verify_reads_every_byte(maker: Maker, tmp_path: Path, capfd: Shown) -> None:
    """One flipped bit in one part is found, named, and ends with 1."""
    assert call(capfd, "verify", maker.url)[0] == 0
    code, out, _ = call(capfd, "verify", maker.url, "--all")
    assert code == 0 and out.count(": good,") == 4 and len(out.splitlines()) == 4
    folder = tmp_path / "run" / maker.log.entry(3).snapshot.folder
    part = sorted(folder.glob("*.bin"))[1]
    data = bytearray(part.read_bytes())
    data[12345] ^= 1
    part.chmod(0o644)
    part.write_bytes(data)
    code, out, _ = call(capfd, "verify", maker.url, "3")
    assert code == 1 and part.name in out and "step 20: damaged" in out
    code, out, _ = call(capfd, "verify", maker.url, "--all")
    assert code == 1 and out.count(": good,") == 3
    part.unlink()
    assert "is gone" in call(capfd, "verify", maker.url, "3")[1]
    assert not (tmp_path / "run" / "leases").exists()


def test_checkpoint_that_its_job_removes_meanwhile_is_not_damaged(
    maker: Maker, capfd: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention goes on beside a look at all checkpoints, which leaves it out."""
    read = read_manifest

    def removed_at(bucket: ReadableBucket, entry: LogEntry) -> Manifest:
        if entry.number == victim:
            remove(maker.bucket, CommitLog(maker.bucket), [victim], is_forced=True)
        return read(bucket, entry)

    monkeypatch.setattr(show, "read_manifest", removed_at)
    monkeypatch.setattr(show, "reading", lambda *_: nullcontext())
    victim = 2
    code, out, _ = call(capfd, "ls", maker.url, "--json")
    assert (code, [each["number"] for each in json.loads(out)]) == (0, [5, 4, 3])
    victim = 3
    code, out, _ = call(capfd, "verify", maker.url, "--all")
    assert code == 0 and out.count(": good,") == 2 and "damaged" not in out
    assert "checkpoint 3, step 20: given up meanwhile" in out
    victim = 4
    code, out, _ = call(capfd, "verify", maker.url, "4")
    assert code == 1 and "step 30: given up meanwhile, so it was not verified" in out


def test_verify_names_an_entry_that_cannot_be_read(
    maker: Maker, tmp_path: Path, capfd: Shown
) -> None:
    """With its number it is damage as well, not a wrong call."""
    (tmp_path / "run" / entry_name(2)).write_bytes(b"?")
    code, out, err = call(capfd, "verify", maker.url, "--all")
    assert code == 1 and out.count("good") == 3 and "checkpoint 2" in err
    code, _, err = call(capfd, "verify", maker.url, "2")
    assert code == 1 and err.count("\n") == 1


def test_newest_entry_that_cannot_be_read_is_told(
    maker: Maker, tmp_path: Path, capfd: Shown
) -> None:
    """An older checkpoint is not taken for the newest without a word, nor called all that is."""
    newest = tmp_path / "run" / entry_name(5)
    newest.write_bytes(changed(newest.read_bytes(), format=9))
    sentence = "elasticd: The entry 5 of the log, commits/000000000005.json, is damaged: It has the"
    for command, code in (("ls", 0), ("show", 0), ("verify", 1), ("verify --all", 1)):
        words = command.split()
        found, out, err = call(capfd, words[0], maker.url, *words[1:])
        assert found == code and "30" in out and err.startswith(sentence) and err.count("\n") == 1
    assert call(capfd, "show", maker.url, "3")[2] == "", "where the newest is not meant"
    for number in range(1, 6):
        (tmp_path / "run" / entry_name(number)).write_bytes(b"?")
    code, _, err = call(capfd, "ls", maker.url)
    assert code == 2 and "no readable checkpoint at" in err and "The entry 5 of the log" in err


def test_rm_removes_and_a_dry_run_does_not(maker: Maker, capfd: Shown) -> None:
    """By number and by policy."""
    code, out, _ = call(capfd, "rm", maker.url, "2", "--dry-run")
    assert code == 0 and "dry run" in out and maker.numbers() == [5, 4, 3, 2]
    code, out, _ = call(capfd, "rm", maker.url, "2")
    assert code == 0 and "removed checkpoint 2, step 10" in out
    code, out, _ = call(capfd, "rm", maker.url, "--keep-last", "2", "--dry-run")
    assert code == 0 and "would remove checkpoint 3" in out
    assert call(capfd, "rm", maker.url, "--keep-last", "2")[0] == 0
    assert maker.numbers() == [5, 4] and maker.folders() == [30, 40]
    assert "nothing to remove" in call(capfd, "rm", maker.url, "--keep-last", "2")[1]
    assert call(capfd, "rm", maker.url, "--keep-last", "1", "--force")[0] == 0
    assert maker.numbers() == [5]
    assert call(capfd, "rm", maker.url, "5", "--force")[0] == 0
    code, _, err = call(capfd, "ls", maker.url)
    assert code == 2 and err == f"elasticd: There is no checkpoint at {maker.url}.\n"


def test_rm_keeps_milestones(maker: Maker, capfd: Shown) -> None:
    """The first of each twenty steps."""
    maker.save(50)
    maker.save(60)
    assert call(capfd, "rm", maker.url, "--keep-last", "2", "--keep-every", "20")[0] == 0
    assert [maker.log.entry(n).snapshot.step for n in maker.numbers()] == [60, 50, 40, 20]


def test_rm_says_what_somebody_reads(maker: Maker, capfd: Shown) -> None:
    """The policy passes over it; by number it is refused."""
    text = json.dumps({"number": 2, "until_unix_s": time.time() + 100}).encode()
    maker.bucket.replace("leases/x.json", text)
    code, out, _ = call(capfd, "rm", maker.url, "--keep-last", "2")
    assert code == 0 and "checkpoint 2 stays: it is being read" in out
    code, _, err = call(capfd, "rm", maker.url, "2", "--force")
    assert code == 2 and "is being read" in err
    assert maker.numbers() == [5, 4, 2]


def test_sweep_tells_what_it_deletes(maker: Maker, tmp_path: Path, capfd: Shown) -> None:
    """After the day that an upload may take."""
    snapshot, _ = maker.put(5)
    assert "nothing to sweep" in call(capfd, "sweep", maker.url)[1]
    for path in (tmp_path / "run" / snapshot.folder).iterdir():
        os.utime(path, (1, time.time() - 7200))
    assert "nothing to sweep" in call(capfd, "sweep", maker.url)[1]
    code, out, _ = call(capfd, "sweep", maker.url, "--older-than", "90m", "--dry-run")
    assert code == 0 and "dry run" in out and snapshot.folder in out
    assert call(capfd, "sweep", maker.url, "--older-than", "90m")[0] == 0
    assert maker.folders() == [10, 20, 30, 40]


BAD_CALLS = [
    (["ls", "nope://x"], "nope://"),
    (["ls", ""], "names nothing"),
    (["ls", "s3://"], "names no bucket"),
    (["ls", "s3:///folder"], "names no bucket"),
    (["export", "URL", "--format", "torch", "--to", ""], "--to names no folder"),
    (["ls", "file://here"], "three slashes"),
    (["ls", "s3://user:secret@bucket/x"], "leave credentials"),
    (["ls", "s3://bucket/x?token=secret"], "leave credentials"),
    (["ls", "URL", "--storage-options", "{"], "no JSON"),
    (["ls", "URL", "--storage-options", "[1]"], "no JSON object"),
    (["ls", "URL", "--storage-options", '{"secret": "x"}'], "'secret'"),
    (["ls", "URL", "--storage-options", '{"secret": "env:NO_SUCH"}'], "NO_SUCH"),
    (["ls"], "URL"),
    (["ls", "EMPTY"], "There is no checkpoint at"),
    (["show", "EMPTY"], "There is no checkpoint at"),
    (["verify", "EMPTY", "--all"], "There is no checkpoint at"),
    (["rm", "EMPTY", "3"], "There is no checkpoint at"),
    (["rm", "EMPTY", "--keep-last", "3"], "There is no checkpoint at"),
    (["sweep", "EMPTY"], "There is no checkpoint at"),
    (["show", "URL", "9"], "no checkpoint 9"),
    (["show", "URL", "1"], "no checkpoint 1"),
    (["show", "URL", "x"], "'x'"),
    (["show", "URL", "--step", "15"], "no checkpoint of step 15"),
    (["show", "URL", "2", "--step", "10"], "NUMBER and --step"),
    (["verify", "URL", "9"], "no checkpoint 9"),
    (["verify", "URL", "2", "--all"], "--all"),
    (["rm", "URL"], "either NUMBER"),
    (["rm", "URL", "2", "--keep-last", "3"], "either NUMBER"),
    (["rm", "URL", "2", "--keep-every", "3"], "--keep-every"),
    (["rm", "URL", "--keep-last", "1"], "--force"),
    (["rm", "URL", "2", "9"], "no checkpoint 9"),
    (["rm", "URL", "5"], "--force"),
    (["sweep", "URL", "--older-than", "5m"], "--older-than 5m"),
    (["sweep", "URL", "--older-than", "soon"], "--older-than soon"),
    (["sweep", "URL", "--older-than", "infd"], "--older-than infd"),
    (["sweep", "URL", "--older-than", "1e400h"], "1e400h is no time that ever passes"),
    (["export", "URL", "--format", "pickle", "--to", "x"], "pickle"),
    (["export", "URL", "--to", "x"], "--format"),
    (["export", "URL", "--format", "torch"], "--to"),
    (["export", "URL", "--format", "torch", "--to", "s3://b/x"], "s3://b/x"),
    (["export", "URL", "9", "--format", "torch", "--to", "x"], "no checkpoint 9"),
    (["export", "EMPTY", "--format", "torch", "--to", "x"], "There is no checkpoint at"),
    (["export", "URL", "--format", "torch", "--to", "URL"], "is there already"),
    (["export", "URL", "--format", "torch", "--to", "LOOP/x"], "x"),
    (["nonsense"], "nonsense"),
]


@pytest.mark.parametrize(("argv", "said"), BAD_CALLS)
def test_a_wrong_call_is_answered_in_one_sentence_with_exit_code_2(
    argv: list[str], said: str, maker: Maker, tmp_path: Path, capfd: Shown
) -> None:
    """On stderr, without what is secret; nothing is removed."""
    places = {"URL": str(tmp_path / "run"), "EMPTY": str(tmp_path / "empty")}
    (tmp_path / "loop").symlink_to("loop")
    places["LOOP/x"] = str(tmp_path / "loop" / "x")
    code, out, err = call(capfd, *(places.get(word, word) for word in argv))
    assert (code, out) == (2, "")
    assert err.startswith("elasticd: ") and err.count("\n") == 1
    assert said in err and "secret@" not in err and "token=" not in err
    assert maker.numbers() == [5, 4, 3, 2]


def test_a_missing_driver_is_named(capfd: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    for name in ("gcsfs", "gcsfs.core"):
        monkeypatch.setitem(sys.modules, name, None)  # As where it is not installed.
    monkeypatch.delitem(sys.modules, "elasticd.checkpoint.storage.gcs", raising=False)
    code, _, err = call(capfd, "ls", "gs://bucket/x")
    assert code == 2 and "pip install gcsfs" in err and err.count("\n") == 1


def test_no_permission_is_said(maker: Maker, tmp_path: Path) -> None:
    """root may read everything, so this runs as nobody where it can."""
    code = (
        "import os, sys; from elasticd.cli.main import main;"
        "import elasticd.cli.checkpoints.show, elasticd.checkpoint.storage.fsspec_bucket;"
        "os.getuid() == 0 and os.setuid(65534); sys.exit(main(sys.argv[1:]))"
    )
    (tmp_path / "run" / "commits").chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, "checkpoint", "ls", maker.url],
            capture_output=True,
            text=True,
            check=False,
            timeout=patience_s(60.0),
        )
    finally:
        (tmp_path / "run" / "commits").chmod(0o755)
    assert done.returncode == 2, done.stderr
    assert "Permission denied" in done.stderr and done.stderr.count("\n") == 1


def test_any_fsspec_storage_will_do(capfd: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the driver, with its listing and its deletions; memory will do in one process."""
    monkeypatch.setattr(bucket, "checked_url", lambda url, **_: url)
    maker = Maker(f"memory://elasticd-{uuid.uuid4().hex}/run")
    maker.open(1)
    for step in (10, 20, 30):
        maker.save(step)
    assert call(capfd, "ls", maker.url)[0] == 0
    assert call(capfd, "verify", maker.url, "--all")[0] == 0
    assert call(capfd, "rm", maker.url, "--keep-last", "2")[0] == 0
    assert maker.folders() == [20, 30]
    assert call(capfd, "sweep", maker.url)[0] == 0


def test_a_checkpoint_gives_no_orders_to_a_terminal(maker: Maker, capfd: Shown) -> None:
    """Whoever wrote it may have put escape sequences into its names and values."""
    import torch

    maker.save(50, {"\x1b[2Jw": torch.ones(2), "\x1b]0;v": "\x1b[31m"})
    code, out, err = call(capfd, "show", maker.url)
    assert code == 0 and "\x1b" not in out + err and "x1b[2Jw" in out


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str, capfd: Shown) -> None:
    """And is found where the table says."""
    code, out, _ = call(capfd, command, "--help")
    assert code == 0 and "Usage: elasticd checkpoint" in out and "--storage-options" in out


def test_a_look_at_checkpoints_needs_no_torch(maker: Maker) -> None:
    """Nor a driver that is not used, nor etcd."""
    code = (
        "import sys; from elasticd.cli.main import main;"
        f"main(['checkpoint', 'show', {maker.url!r}, '--json']);"
        "print([n for n in ('torch', 'rich', 'grpc', 's3fs') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=patience_s(60.0),
    )
    assert done.stdout.splitlines()[-1] == "[]"

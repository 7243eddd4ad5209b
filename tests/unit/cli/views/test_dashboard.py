"""What `elasticd dashboard` refuses, in a sentence, before anything listens."""

from pathlib import Path

import pytest

from elasticd.cli.main import main


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--host", "0.0.0.0"], "others can reach the dashboard: give --token-file"),
        (["--port", "70000"], "70000 is not in the range 0<=x<=65535"),
        (["--token-file", "no-such-file"], "no-such-file cannot be read (No such file or"),
        (["--token-file", "."], "(Is a directory): give --token-file with a text file that this"),
        (["--token-file", ""], "Invalid value for '--token-file': it is empty: give a value"),
        (["--host", ""], "Invalid value for '--host': it is empty: give a value, or leave"),
        (["--token-file", "short"], "has 5 characters: give one word of at least 16"),
        (["--token-file", "binary"], "cannot be read"),
        (["--host", "192.0.2.1", "--token-file", "good"], "cannot listen on 192.0.2.1 port 8900"),
        (["--etcd", "ftp://x"], "ftp://x"),
        (["--allow-actions"], "change jobs: give --token-file with a file that has a token of"),
    ],
)
def test_wrong_flags_are_one_sentence(
    flags: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No traceback, and nothing is served."""
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("12345\n")
    Path("binary").write_bytes(b"\xff\xfe\x00" * 20)
    Path("good").write_text("0123456789abcdef\n")
    assert main(["dashboard", *flags]) != 0
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1

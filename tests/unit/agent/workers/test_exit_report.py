"""How a worker's end is told, from what it said and what stands in its files."""

from pathlib import Path

import pytest

from elasticd.channel.pool import Raised
from elasticd_agent.workers.exit_report import ExitReport, exit_report_of, is_echo

NOWHERE = Path("/nowhere")
TRACEBACK = """Traceback (most recent call last):
  File "/home/u/train.py", line 3, in <module>
    reduce()
RuntimeError: [/gloo/pair.cc:534] Connection closed by peer [127.0.0.1]:1
"""


def raised(exception: str, **more: bool) -> Raised:
    return Raised(
        worker="w",
        exception=exception,
        where="/home/u/t.py:9",
        traceback="",
        has_group=True,
        **more,
    )


def test_exit_that_was_called_for_says_where(tmp_path: Path) -> None:
    """Its last words are what the script printed."""
    log = tmp_path / "rank-0.err"
    log.write_text("the data are not there\n")
    told = exit_report_of(raised("SystemExit: 3"), NOWHERE, log)
    assert (told.exception, told.where) == ("SystemExit: 3", "/home/u/t.py:9")
    assert told.traceback == "the data are not there"
    assert not is_echo(told)


def test_exit_after_a_broken_collective_is_an_echo(tmp_path: Path) -> None:
    """Scripts catch, print and leave."""
    log = tmp_path / "rank-0.err"
    log.write_text(TRACEBACK)
    told = exit_report_of(raised("SystemExit: 1"), NOWHERE, log)
    assert told.exception.startswith("RuntimeError") and told.where == "/home/u/train.py:3"
    assert is_echo(told)
    log.write_text("Connection reset by peer, I give up\n")
    assert is_echo(exit_report_of(raised("SystemExit: 1"), NOWHERE, log))


@pytest.mark.parametrize("ends_job", [True, False])
def test_exception_says_whether_it_ends_the_job(ends_job: bool) -> None:
    told = exit_report_of(raised("GradientsNotFinite: nan", ends_job=ends_job), NOWHERE, NOWHERE)
    assert told == ExitReport(
        exception="GradientsNotFinite: nan",
        where="/home/u/t.py:9",
        has_group=True,
        ends_job=ends_job,
    )


def test_echo_is_known_by_the_end_of_a_long_message(tmp_path: Path) -> None:
    """Some libraries begin with pages of their own; what is kept of it is cut off before."""
    message = "UnavailableError: {{function_node x}} " + "wrapped " * 100
    text = 'Traceback (most recent call last):\n  File "/u/t.py", line 3, in <module>\n    f()\n'
    last = Raised(
        worker="w",
        exception=message[:500],
        where="/u/t.py:3",
        traceback=f"{text}{message}\nConnection reset by peer\n",
        has_group=True,
    )
    assert is_echo(exit_report_of(last, NOWHERE, NOWHERE))


def test_source_line_is_no_echo(tmp_path: Path) -> None:
    """Only the message counts, and not that of an earlier exception that was handled."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "/u/t.py", line 2, in f\n    read()\n'
        "ConnectionResetError: Connection reset by peer\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "/u/t.py", line 3, in <module>\n'
        '    raise ValueError("no data")  # Connection reset by peer\n'
        "ValueError: no data\n"
    )
    own = Raised(
        worker="w",
        exception="ValueError: no data",
        where="/u/t.py:3",
        traceback=text,
        has_group=True,
    )
    assert not is_echo(exit_report_of(own, NOWHERE, NOWHERE))


def test_nothing_of_it_steers_a_terminal(tmp_path: Path) -> None:
    """Whoever asks for the status of somebody else's job keeps the screen, and its title."""
    log = tmp_path / "rank-0.err"
    log.write_text(
        "\x1b[31mred\x1b[0m \x1b]0;mine\x07title \x1b[2J\x9b5m\ttab\nsecond\rthird\x00\n"
    )
    assert exit_report_of(None, NOWHERE, log).traceback == "red title ?5m\ttab\nsecond\nthird?"
    told = exit_report_of(raised("ValueError: \x1b[1mx\x1b"), NOWHERE, log)
    assert told.exception == "ValueError: x?"

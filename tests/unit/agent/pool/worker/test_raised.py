"""What is told of an exception fits a record and points at the user's line."""

import json
from pathlib import Path

import pytest

from elasticd.records.failure import TRACEBACK_LIMIT_BYTES
from elasticd_agent.pool.worker.raised import describe, write_error_file


def caught(source: str, file: str) -> BaseException:
    """Run source as if it stood in a file; returns what it raised, without our own frame."""
    try:
        exec(compile(source, file, "exec"), {})
    except BaseException as exc:
        own = exc.__traceback__
        return exc.with_traceback(own.tb_next if own else None)
    raise AssertionError("it raised nothing")


def test_where_names_the_users_innermost_line_not_a_librarys() -> None:
    """The error rose in the standard library; the user called it."""
    told = describe("w", caught("import json\n\njson.loads('{')", "/home/u/train.py"))
    assert told.where == "/home/u/train.py:3"
    assert told.exception.startswith("JSONDecodeError: ")


def test_where_falls_back_to_the_innermost_line() -> None:
    """Code that came from nowhere (exec) is better than nothing."""
    assert describe("w", caught("1 / 0", "<string>")).where == "<string>:1"


def test_where_of_a_syntax_error_is_the_line_that_python_cannot_read() -> None:
    """There is no frame to name."""
    exc = SyntaxError("bad", ("/home/u/train.py", 7, 1, "x = = 1"))
    assert describe("w", exc).where == "/home/u/train.py:7"


def test_long_texts_are_cut_and_the_end_of_the_traceback_stays() -> None:
    """A record has a limit; the newest lines say most."""
    told = describe("w", caught("raise ValueError('ü' * 3000 + 'end')", "/home/u/train.py"))
    assert len(told.exception) == 500
    assert len(told.traceback.encode()) <= TRACEBACK_LIMIT_BYTES
    assert told.traceback.endswith("end\n")


def test_cut_traceback_starts_with_a_whole_line() -> None:
    """Half a line would mislead."""
    source = "\n".join(f"def f{n}(): f{n + 1}()" for n in range(99)) + "\ndef f99(): 1 / 0\nf0()"
    told = describe("w", caught(source, "/home/u/train.py"))
    assert told.traceback.startswith("  File ")
    assert told.traceback.endswith("ZeroDivisionError: division by zero\n")


def test_exception_whose_text_fails_is_told_by_type() -> None:
    """A broken __str__ must not hide the failure."""
    source = "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E"
    assert describe("w", caught(source, "/home/u/t.py")).exception == "E: (its text cannot be made)"


def test_error_file_is_written_once_in_records_form(tmp_path: Path) -> None:
    """A second writer finds it taken: @record's own file tells more."""
    path = tmp_path / "deep" / "error.json"
    write_error_file(str(path), caught("raise ValueError(1)", "/home/u/train.py"))
    write_error_file(str(path), KeyError("later"))
    message = json.loads(path.read_text())["message"]
    assert message["message"] == "ValueError: 1"
    assert set(message["extraInfo"]) == {"py_callstack", "timestamp"}


@pytest.mark.parametrize("path", [""])
def test_no_error_file_is_asked_for(path: str) -> None:
    """Then there is none."""
    write_error_file(path, ValueError())

"""Tables in terminals that are too narrow for them."""

from elasticd.cli.terminal.table import narrow_lines

COLUMNS = ("JOB", "PHASE", "MESSAGE")
ROWS = (("resnet-50", "waiting", "waiting for 2 more nodes: 1 ready"), ("gpt", "running", ""))


def test_table_that_fits_is_left_to_be_drawn() -> None:
    """In a wide terminal nothing changes."""
    assert narrow_lines(COLUMNS, ROWS, 80) == []


def test_sentence_in_the_last_column_goes_below_its_row() -> None:
    """It is mostly what makes a table too wide; where there is none nothing is below."""
    assert narrow_lines(COLUMNS, ROWS, 40) == [
        "JOB         PHASE",
        "resnet-50   waiting",
        "    waiting for 2 more nodes: 1 ready",
        "gpt         running",
    ]


def test_cells_stand_below_each_other_where_not_even_that_fits() -> None:
    """A phone; empty ones are left out."""
    assert narrow_lines(COLUMNS, ROWS, 15) == [
        "resnet-50",
        "    phase: waiting",
        "    message: waiting for 2 more nodes: 1 ready",
        "gpt",
        "    phase: running",
    ]


def test_table_without_rows_has_its_head_alone() -> None:
    """However narrow the terminal is."""
    assert narrow_lines(COLUMNS, (), 20) == ["JOB   PHASE"]
    assert narrow_lines(("JOB",), (), 2) == []

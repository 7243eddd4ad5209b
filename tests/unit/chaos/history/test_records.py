"""Lines go to disk and come back; what a killed process tore is its own line only."""

from pathlib import Path

from chaos.history.records import Acted, Applied, Entered, History, Took, parse_line, to_line
from chaos.history.tail import Tail
from tests.unit.chaos.play import Play


def test_every_record_comes_back() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=3)
    play.fault()
    for record in play.records:
        assert parse_line(to_line(record)) == record


def test_a_torn_line_costs_no_other_one() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=2)
    lines = [to_line(record) for record in play.records]
    lines[3] = lines[3][: len(lines[3]) // 2]
    history = History.read("".join(lines).split("\n"))
    assert history.torn == 1
    assert len(history.entered) + len(history.took) + len(history.applied) == len(lines) - 1


def test_a_line_of_another_shape_is_torn() -> None:
    for line in ("7", "{}", '{"is":"Took"}', '{"is":"Nothing"}', '{"is":"Acted","x":1}'):
        assert parse_line(line) is None, line


def test_the_tail_sees_a_commit_when_the_last_rank_has_applied(tmp_path: Path) -> None:
    path = tmp_path / "ranks.jsonl"
    play = Play()
    play.generation(1, [11, 12], base=0, steps=1)
    *most, last = play.records
    tail = Tail(path, full_size=2)
    tail.read()
    with path.open("a") as file:
        file.write("".join(map(to_line, most)))
        file.flush()
        tail.read()
        assert not tail.is_full_since(0.0)
        text = to_line(last)
        file.write(text[:20])
        file.flush()
        tail.read()
        assert not tail.is_full_since(0.0)
        file.write(text[20:])
        file.flush()
        tail.read()
    assert tail.is_full_since(0.0)
    assert not tail.is_full_since(play.now_s)
    assert (tail.generation, tail.newest_step, tail.commits) == (1, 1, 1)
    assert {process: entered.rank for process, entered in tail.ranks.items()} == {"11": 0, "12": 1}


def test_the_tail_does_not_take_a_smaller_world_for_the_full_one(tmp_path: Path) -> None:
    path = tmp_path / "ranks.jsonl"
    play = Play()
    play.generation(1, [11], base=0, steps=3)
    acted = Acted(at_s=1.0, generation=1, rank=0, step=2, number=4, pid=11)
    path.write_text("".join(map(to_line, [*play.records, acted])))
    tail = Tail(path, full_size=2)
    tail.read()
    assert not tail.is_full_since(0.0)
    assert tail.commits == 3
    assert tail.acted == {4: acted}


def test_records_are_sorted_by_time() -> None:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=3)
    history = History(reversed(play.records))
    for kind in (history.took, history.applied, history.entered):
        records: list[Took | Applied | Entered] = list(kind)
        assert records == sorted(records, key=lambda record: record.at_s)

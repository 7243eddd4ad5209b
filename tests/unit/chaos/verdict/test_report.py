"""What a person and a machine read."""

import json
from dataclasses import replace

from chaos.plan.fault import Kind
from chaos.plan.scenario import Scenario, Verdict
from chaos.verdict.invariants import judge
from chaos.verdict.report import to_json, to_markdown, to_text
from tests.unit.chaos.play import Play, losses


def report(*, digest: str | None = None) -> dict[str, object]:
    play = Play()
    play.generation(1, [11, 12], base=0, steps=5)
    play.fault(Kind.WORKER_KILL)
    play.generation(2, [11, 12], base=5, steps=5)
    history = play.history()
    if digest is not None:
        history.applied[-1] = replace(history.applied[-1], digest=digest)
    judgement = judge(history, Verdict(), losses(10))
    return to_json(Scenario(name="play"), history, judgement, seed=3, machine="a machine")


def test_a_report_is_plain_json() -> None:
    found = json.loads(json.dumps(report()))
    assert found["holds"] is True
    assert found["by_kind"]["worker-kill"]["recover"]["count"] == 1
    assert found["each_fault"][0]["kind"] == "worker-kill"


def test_the_text_ends_with_the_verdict() -> None:
    assert to_text(report()).splitlines()[-1] == "VERDICT: every rule held"
    text = to_text(report(digest="other"))
    assert text.splitlines()[-1] == "VERDICT: BROKEN"
    assert "BROKEN  I6" in text


def test_the_page_names_every_rule_and_says_what_was_not_tested() -> None:
    page = to_markdown(report())
    assert "| I1 |" in page and "| I11 |" in page
    assert "| goodput | goodput is at least 0% | 0 | not tested |" in page
    assert "| worker-kill" in page
    assert "**broken**" not in page
    assert "**broken**" in to_markdown(report(digest="other"))

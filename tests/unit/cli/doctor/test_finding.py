"""How findings are shown, and what an error in a check becomes."""

from collections.abc import Iterator

from elasticd.cli.doctor.finding import Finding, Verdict, guarded, lines_of, summary_of
from elasticd.errors import Unavailable


def finding(verdict: Verdict, advice: str = "") -> Finding:
    return Finding(subject="etcd", verdict=verdict, found="it is\n so", advice=advice)


def test_finding_is_one_line_and_its_advice_stands_below() -> None:
    assert lines_of(finding(Verdict.OK)) == ["ok       etcd           it is so"]
    lines = lines_of(finding(Verdict.PROBLEM, advice="Mend it."))
    assert lines == ["problem  etcd           it is so", " " * 24 + "Mend it."]


def test_last_line_counts_what_is_wrong() -> None:
    assert summary_of([finding(Verdict.OK)]) == "No problem was found."
    assert summary_of([finding(Verdict.WARNING)] * 2) == "2 warnings found."
    both = [finding(Verdict.PROBLEM), finding(Verdict.OK), finding(Verdict.WARNING)]
    assert summary_of(both) == "1 problem and 1 warning found."


def test_error_of_a_check_is_a_problem_after_what_it_found_before() -> None:
    def check() -> Iterator[Finding]:
        yield finding(Verdict.OK)
        raise Unavailable("No etcd answers.")

    def refused() -> Iterator[Finding]:
        raise OSError(13, "Permission denied", "/runs")

    found = list(guarded("etcd", check))
    assert [each.verdict for each in found] == [Verdict.OK, Verdict.PROBLEM]
    assert found[1].found == "No etcd answers."
    (other,) = guarded("run folder", refused)
    assert other.found == "The system refused a call (Permission denied: /runs)."

"""The texts of a bundle: the records of a job as sentences and as JSON."""

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout

from elasticd import __version__
from elasticd.autoscale.explain.explanation import explain_plain
from elasticd.bundle.part import MissingFile
from elasticd.cli.autoscale.explain import tell_explanation
from elasticd.cli.jobs.status import show_job, status_plain
from elasticd.cli.terminal import words
from elasticd.cli.terminal.table import show_table
from elasticd.cli.terminal.time_words import time_rows, time_sentence
from elasticd.cli.why.command import change_plain, tell_why
from elasticd.cli.why.earlier_changes import EarlierChanges
from elasticd.cli.why.page import why_page
from elasticd.control.report.report import JobReport
from elasticd.control.report.trace import chrome_trace
from elasticd.records.account.progress import RankProgress
from elasticd.records.codec import to_plain

__all__ = ["missing_text", "readme", "report_texts"]

WORTH = """
why.txt            what changed in the job, for what reason, who was first, what it cost
why.html           the same as a page, with tracebacks
status.txt         where the job stands, and the last failure
account.txt        where the time of all its slots went
autoscale.txt      its policy, the curve that was measured, and each decision with what came of it
trace.json         the changes, for https://ui.perfetto.dev
data/              the same for programs: spec, status, worlds, incidents, late nodes, account,
                   checkpoints
run/JOB/           the ends of the workers' output (gen-*), stacks of those that hung (incidents),
                   what agents, pools and keepers of checkpoints logged (agents)
metrics/           what each agent told Prometheus, at that moment
versions/          what is installed on each node; here.json: on the machine that made this
MISSING.txt        what could not be had, and why
manifest.json      every file, where it comes from, and how much of it is here
"""
SECRETS = """
Masked as *** are the values of --env and of --storage-options, arguments of the script whose names
say that they are secret, variables of the agents that say so, and all places where one of those
values stands in a text; and what looks like a password in a URL, a token or a private key. Another
secret that the script itself printed cannot be known: look before you pass this on.
"""


def report_texts(
    report: JobReport, ranks: Sequence[RankProgress], earlier: EarlierChanges | None = None
) -> Mapping[str, str]:
    """Return the texts by path; the caller has removed all secrets from `report`."""
    earlier = earlier or EarlierChanges()
    worlds = {
        "world": to_plain(report.world),
        "changes": [change_plain(change) for change in report.changes],
        "earlier_changes": to_plain(earlier),
    }
    found = {
        "why.txt": _captured(lambda: tell_why(report, ranks, earlier)),
        "status.txt": _captured(lambda: show_job(report, ranks)),
        "why.html": why_page(report, time.time(), earlier=earlier),
        "trace.json": json.dumps(chrome_trace(report.spec.name, report.changes, report.incidents)),
        "data/spec.json": _json(to_plain(report.spec)),
        "data/status.json": _json({**status_plain(report), "progress": to_plain(ranks)}),
        "data/worlds.json": _json(worlds),
        "data/incidents.json": _json(to_plain(report.incidents)),
    }
    if report.late:
        found["data/late.json"] = _json(to_plain(report.late))
    if report.autoscaling is not None:
        # The leader is left out: its record is not a record of the job.
        found["autoscale.txt"] = _captured(lambda: tell_explanation(report, "", last=0))
        plain = explain_plain(report, last=0, now_unix_s=time.time())
        found["data/autoscale.json"] = _json(plain)
    if report.time is not None:
        spent = report.time
        found["account.txt"] = (
            _captured(lambda: show_table(("CAUSE", "SLOT-SECONDS", "SHARE"), time_rows(spent)))
            + f"{time_sentence(spent)}\n"
        )
        found["data/account.json"] = _json(spent.plain)
    return found


def readme(report: JobReport | None, job: str, source: str, now_unix_s: float) -> str:
    """Return a text that says how the job ended, and which file to read first."""
    when = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now_unix_s))
    lines = [f"Job {job}, as of {when}: made by elasticd {__version__} from {source}.", ""]
    if report is not None:
        lines.append(words.standing_of(report))
        if report.status.failure is not None and words.is_failed(report.status):
            lines += words.failure_lines(report.status.failure)
        lines.append("")
    lines += [
        "elasticd reads the folder run as it reads any run:",
        f"    elasticd why {job} --log-dir run",
        f"    elasticd logs {job} --log-dir run --rank 0",
        "    elasticd dashboard --log-dir run",
    ]
    return "\n".join(lines) + "\n" + WORTH + SECRETS


def missing_text(missing: Sequence[MissingFile]) -> str:
    """Return one line for each missing file."""
    if not missing:
        return "Nothing: all that was asked for is here.\n"
    return "".join(f"{each.sentence}\n" for each in missing)


def _json(plain: object) -> str:
    return json.dumps(plain, indent=1) + "\n"


def _captured(show: Callable[[], None]) -> str:
    """Return the text that `show` prints when there is no terminal."""
    text = io.StringIO()
    with redirect_stdout(text):
        show()
    return text.getvalue()

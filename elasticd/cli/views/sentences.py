"""The sentences of the command line, for the views that cannot import it."""

from elasticd.cli import words
from elasticd.dashboard.job_view import Sentences

__all__ = ["SENTENCES"]

SENTENCES = Sentences(change=words.timeline, ending=lambda report: words.ending(report.status))

"""The sentences of the command line, for the views, which cannot import the command line."""

from elasticd.autoscale.explain.view import autoscale_view
from elasticd.cli.jobs.late_words import late_sentence
from elasticd.cli.terminal import words
from elasticd.dashboard.job_view import Sentences

__all__ = ["SENTENCES"]

SENTENCES = Sentences(
    change=words.timeline,
    ending=words.standing_of,
    late=lambda report, node: late_sentence(node, is_over=report.status.phase.is_final),
    autoscale=autoscale_view,
)

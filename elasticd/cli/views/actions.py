"""Carries out the actions of a dashboard's page, as the commands of the same names do."""

import time
from typing import Any

import click

from elasticd.cli.jobs.change.command_report import CommandReport
from elasticd.cli.jobs.change.drain import drain_node, undrain_node
from elasticd.cli.jobs.change.scale import scale_job
from elasticd.cli.jobs.change.stop import ask_to_stop
from elasticd.dashboard.action import (
    ActionRequest,
    DrainRequest,
    ScaleRequest,
    StopRequest,
    UndrainRequest,
)
from elasticd.errors import ElasticdError

__all__ = ["Actor"]

WHY = "the dashboard"


class Actor:
    """Carries out actions. Any thread may call it; each action opens its own connection.

    Nothing is forced: an action that would lose the trained state of a job is refused.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        """`values` are those of the options that say where the records are."""
        self._values = values

    def __call__(self, action: ActionRequest) -> str:
        """Carry out an action; return a sentence about the result, which is printed, too.

        Raises: ElasticdError: the action is refused, or etcd does not answer.
        """
        told: list[str] = []
        try:
            self._do(action, CommandReport(echo=told.append))
        except ElasticdError as exc:
            _log(f"refused: {exc}")
            raise
        sentence = "; ".join(told)
        _log(sentence)
        return sentence

    def _do(self, action: ActionRequest, said: CommandReport) -> None:
        match action:
            case ScaleRequest(job=job, nodes=nodes):
                scale_job(job, nodes, said, self._values)
            case StopRequest(job=job):
                ask_to_stop(job, WHY, said, self._values, is_forced=False)
            case DrainRequest(node=node):
                drain_node(node, WHY, said, self._values, is_forced=False)
            case UndrainRequest(node=node):
                undrain_node(node, said, self._values)


def _log(sentence: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')}  {sentence}")

"""`python -m chaos.cluster`: break ElasticJobs of a cluster on purpose, and print a verdict."""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import click

from chaos.cluster.fault import TRAITS, Kind
from chaos.cluster.plan import Plan
from chaos.error import ChaosError, WrongInput
from elasticd.errors import ElasticdError

__all__ = ["main"]

KINDS = ",".join(Kind)
DEFAULT_KUBECONFIG = "~/.kube/config"


def _kinds(text: str) -> tuple[Kind, ...]:
    """Read a list of kinds."""
    try:
        return tuple(dict.fromkeys(Kind(word.strip()) for word in text.split(",")))
    except ValueError as exc:
        raise click.BadParameter(f"{exc}: there are {KINDS}") from exc


def _above_zero(text: str) -> float:
    try:
        value = float(text.removesuffix("s"))
    except ValueError as exc:
        raise click.BadParameter(f"{text!r} is no number of seconds") from exc
    if not 0.0 < value < 1e7:
        raise click.BadParameter(f"{text} is not above 0 and below 10,000,000 seconds")
    return value


COUNT = click.IntRange(min=1)
SECONDS: Any = {"type": _above_zero, "metavar": "S", "show_default": True}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", metavar="[ELASTICJOB]...", nargs=-1)
@click.option("--namespace", default="default", show_default=True, help="Of the ElasticJobs.")
@click.option(
    "--agents-namespace", default="elasticd", show_default=True, help="Of the agents' pods."
)
@click.option("--faults", type=COUNT, default=5, show_default=True, help="How many, at most.")
@click.option("--interval", default="60", help="Between the begins of two faults.", **SECONDS)
@click.option(
    "--at-once", type=COUNT, default=1, show_default=True, help="Pods disturbed at once, at most."
)
@click.option(
    "--kinds",
    type=_kinds,
    default=KINDS,
    show_default=True,
    help="; ".join(f"{kind}: {traits.about}" for kind, traits in TRAITS.items()) + ".",
)
@click.option(
    "--stop-for", default="5", help="A stopped worker goes on after this time.", **SECONDS
)
@click.option(
    "--recover-within", default="300", help="A fault is to be overcome in this time.", **SECONDS
)
@click.option(
    "--steps-back",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="How far the step of a job may go back; a script that is started anew goes back to its "
    "checkpoint.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of kinds and victims.")
@click.option("--timeout", default="3600", help="No fault begins after this time.", **SECONDS)
@click.option("--dry-run", is_flag=True, help="Say what would be done now, and do nothing.")
@click.option(
    "--kubeconfig",
    metavar="FILE",
    envvar="KUBECONFIG",
    help=f"Says which API server, and as whom.  [in a pod: its account; else {DEFAULT_KUBECONFIG}]",
)
def cluster(names: tuple[str, ...], dry_run: bool, **values: Any) -> int:
    """Break ElasticJobs that have the label elasticd.dev/chaos=allowed, and judge what they do.

    Without a name all that have the label. Exit code 0: every rule that could be judged held, 1:
    one was broken, 2: wrong input, or a job that is not to be broken, 3: it could not be done.
    """
    plan = Plan(
        kinds=values["kinds"],
        faults=values["faults"],
        at_once=values["at_once"],
        interval_s=values["interval"],
        stop_s=values["stop_for"],
        recover_s=values["recover_within"],
        steps_back=values["steps_back"],
        timeout_s=values["timeout"],
        seed=values["seed"],
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    # Only now what costs: kubernetes, urllib3.
    from chaos.cluster.connect import connect
    from chaos.cluster.run import ClusterRun

    api = connect(
        _kubeconfig(values["kubeconfig"]),
        namespace=values["namespace"],
        agents=values["agents_namespace"],
    )
    with closing(api):
        api.check(plan.kinds)
        run = ClusterRun(api, plan, names, say=_say, stop=stop)
        if dry_run:
            click.echo("\n".join(run.rehearse()))
            return 0
        verdict = run.run()
    click.echo(verdict.to_text())
    click.echo(verdict.to_json())
    if not verdict.log.tracks:
        _say(f"No fault was done, so nothing was judged: {verdict.ended}.")
    return verdict.exit_code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    try:
        code = cluster.main(args=argv, prog_name="chaos.cluster", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as exc:
        _say(exc.format_message())
        return WrongInput.exit_code
    except ChaosError as exc:
        _say(str(exc))
        return exc.exit_code
    except ElasticdError as exc:
        _say(str(exc))
        return ChaosError.exit_code if exc.exit_code == 1 else exc.exit_code


def _kubeconfig(given: str | None) -> str:
    """Return which file is meant; empty for the ServiceAccount of this pod."""
    if given:
        return given
    is_pod = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    return "" if is_pod else os.path.expanduser(DEFAULT_KUBECONFIG)


def _say(sentence: str) -> None:
    """Say something on stderr: a verdict is what stands on stdout."""
    click.echo(f"chaos: {' '.join(sentence.split())}", err=True)


if __name__ == "__main__":
    sys.exit(main())

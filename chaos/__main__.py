"""`python -m chaos`: run a scenario, soak, judge a kept history again."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from chaos.error import ChaosError, WrongInput
from chaos.plan.scenario import Scenario, load
from chaos.plan.schedule import draw
from chaos.processes import network
from chaos.verdict.report import to_markdown, to_text

__all__ = ["main"]

BROKEN = 1
FOLDER = Path(__file__).with_name("scenarios")
SCENARIO = click.argument("scenario", metavar="SCENARIO.toml", type=click.Path(path_type=Path))


def _output(command: Any) -> Any:
    """Add the flags that runs share."""
    for option in (
        click.option("--seed", type=int, default=1, show_default=True, help="Of the schedule."),
        click.option("--dry-run", is_flag=True, help="Print the schedule and start nothing."),
        click.option("--json", "is_json", is_flag=True, help="The whole report on stdout."),
        click.option("--report", type=click.Path(path_type=Path), help="JSON report to a file."),
        click.option("--markdown", type=click.Path(path_type=Path), help="A page to a file."),
        click.option("--keep", type=click.Path(path_type=Path), help="Raw history to a folder."),
        click.option("--quiet", is_flag=True, help="Do not tell each fault on stderr."),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def chaos() -> None:
    """Break a real elasticd on purpose, and see whether its promises hold."""


@chaos.command("run")
@SCENARIO
@_output
def run_command(scenario: Path, **values: Any) -> int:
    """Run one scenario; exit code 1: a rule was broken."""
    return _run(load(_path(scenario)), values)


@chaos.command("soak")
@click.option("--faults", type=int, default=1000, show_default=True)
@click.option("--nodes", type=int, default=3, show_default=True)
@click.option("--workers", type=int, default=1, show_default=True, help="Of each node.")
@click.option("--step-sleep", type=float, default=0.04, show_default=True, metavar="S")
@click.option(
    "--network/--no-network", "has_network", default=None, help="Namespaces.  [if possible]"
)
@_output
def soak_command(
    faults: int,
    nodes: int,
    workers: int,
    step_sleep: float,
    has_network: bool | None,
    **values: Any,
) -> int:
    """Run faults of all kinds for a long time."""
    from chaos.plan.soak import soak

    if has_network is None:
        has_network = network.is_possible()
    scenario = soak(
        faults, has_network=has_network, nodes=nodes, workers=workers, step_sleep_s=step_sleep
    )
    return _run(scenario, values)


@chaos.command("judge")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--json", "is_json", is_flag=True, help="The whole report on stdout.")
@click.option("--report", type=click.Path(path_type=Path), help="JSON report to a file.")
@click.option("--markdown", type=click.Path(path_type=Path), help="A page to a file.")
def judge_command(folder: Path, **values: Any) -> int:
    """Compute the verdict of a kept history again."""
    from chaos.run import rejudge

    return _show(rejudge(folder), values)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    try:
        code = chaos.main(args=argv, prog_name="chaos", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as exc:
        _complain(exc.format_message())
        return WrongInput.exit_code
    except click.ClickException as exc:
        _complain(f"chaos: {exc.format_message()}")
        return WrongInput.exit_code
    except ChaosError as exc:
        _complain(f"chaos: {' '.join(str(exc).split())}")
        return exc.exit_code
    except (KeyboardInterrupt, click.Abort):
        _complain("chaos: interrupted; everything was ended.")
        return 130


def _run(scenario: Scenario, values: dict[str, Any]) -> int:
    seed = values["seed"]
    schedule = draw(scenario, seed)
    if values["dry_run"]:
        for fault in schedule:
            sign = "+" if fault.is_overlap else " "
            click.echo(f"{fault.number:5d} {sign}{fault.wait_s:6.3f} s  {fault}")
        return 0
    if scenario.site.has_network and (why := network.why_impossible()):
        raise ChaosError(f"This scenario needs nodes with networks of their own, but {why}.")
    for name in ("report", "markdown"):
        if values[name] is not None and not values[name].absolute().parent.is_dir():
            raise WrongInput(f"--{name} {values[name]}: there is no such folder.")
    from chaos.run import began_at, run

    report = run(
        scenario,
        seed=seed,
        say=(lambda _: None) if values["quiet"] else _complain,
        keep=values["keep"],
        keep_broken=Path("chaos-broken", f"{scenario.name}-{seed}-{began_at()}"),
    )
    return _show(report, values)


def _show(report: dict[str, Any], values: dict[str, Any]) -> int:
    if values["report"] is not None:
        values["report"].write_text(json.dumps(report, indent=1) + "\n")
    if values["markdown"] is not None:
        values["markdown"].write_text(to_markdown(report))
    click.echo(json.dumps(report) if values["is_json"] else to_text(report))
    if not report["holds"] and "kept" in report:
        _complain(f"The raw history is in {report['kept']}: `python -m chaos judge` reads it.")
    return 0 if report["holds"] else BROKEN


def _path(given: Path) -> Path:
    """Take a path, or the bare name of one of our scenarios."""
    own = FOLDER / f"{given.name}.toml"
    return own if not given.exists() and given.name == str(given) and own.exists() else given


def _complain(sentence: str) -> None:
    click.echo(sentence, err=True)


if __name__ == "__main__":
    sys.exit(main())

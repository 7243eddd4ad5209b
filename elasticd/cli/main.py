"""The command group, and the messages for errors.

An `ElasticdError` or a wrong call prints one plain sentence on stderr; only our own bugs print a
traceback. A table has the names of the commands; a command is imported when it is called.
"""

import difflib
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

import click

from elasticd import __version__
from elasticd.cli.lazy_group import LazyGroup
from elasticd.errors import ElasticdError

__all__ = ["main"]

COMMANDS = {
    "run": ("elasticd.cli.run.command:run", "Run a training script; takes torchrun's flags."),
    "agent": (
        "elasticd.cli.daemons.agent:agent",
        "Run the daemon of a node, which serves its slots.",
    ),
    "status": ("elasticd.cli.jobs.status:status", "Show jobs, or one job."),
    "nodes": ("elasticd.cli.jobs.nodes:nodes", "Show the nodes of the cluster."),
    "logs": ("elasticd.cli.jobs.logs:logs", "Print what a job's workers wrote."),
    "top": ("elasticd.cli.views.top:top", "Show jobs and nodes live in the terminal."),
    "dashboard": (
        "elasticd.cli.views.dashboard:dashboard",
        "Show jobs and nodes live in the browser.",
    ),
    "why": ("elasticd.cli.why.command:why", "Show what changed in a job, why, and what it cost."),
    "bundle": (
        "elasticd.cli.bundle.command:bundle",
        "Pack what a colleague needs to find the cause.",
    ),
    "doctor": (
        "elasticd.cli.doctor.command:doctor",
        "Check what a run needs before you start it.",
    ),
    "wait": ("elasticd.cli.jobs.wait:wait", "Wait until jobs are over; return their exit code."),
    "attach": ("elasticd.cli.jobs.attach:attach", "Show the progress of a job that runs already."),
    "scale": ("elasticd.cli.jobs.change.scale:scale", "Give a job more or fewer nodes."),
    "autoscale": (
        "elasticd.cli.autoscale.group:autoscale",
        "Size jobs by their policies, and explain the sizes.",
    ),
    "operator": (
        "elasticd.cli.daemons.operator:operator",
        "Run the daemon that runs Kubernetes' ElasticJobs.",
    ),
    "drain": (
        "elasticd.cli.jobs.change.drain:drain",
        "Take nodes out of service, or bring them back.",
    ),
    "stop": ("elasticd.cli.jobs.change.stop:stop", "End jobs."),
    "rm": ("elasticd.cli.jobs.rm:rm", "Remove the records of jobs that are over."),
    "prune": (
        "elasticd.cli.jobs.change.prune:prune",
        "Remove the records of all jobs that are over.",
    ),
    "checkpoint": (
        "elasticd.cli.checkpoints.command:checkpoint",
        "List, check, export and remove checkpoints.",
    ),
}
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def _print_version(ctx: click.Context, param: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        click.echo(f"elasticd {__version__}")
        ctx.exit()


@click.command(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings=CONTEXT,
    help="Elastic, fault-tolerant training for PyTorch: a run survives its machines.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
def elasticd() -> None:
    """Hold the commands."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    _prepare_streams()
    streams = sys.stdout, sys.stderr
    try:
        code = elasticd.main(
            args=list(argv) if argv is not None else None,
            prog_name="elasticd",
            standalone_mode=False,
        )
        sys.stdout.flush()  # The interpreter's own flush would not say what went wrong.
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as exc:
        print(exc.format_message(), file=sys.stderr)  # noqa: T201
        return 2
    except click.UsageError as exc:
        command = exc.ctx.command_path if exc.ctx is not None else "elasticd"
        sentence = (_meant(exc) or exc).format_message().rstrip(".")
        joint = " See" if sentence.endswith("?") else ": see"
        complain(f"{sentence}{joint} `{command} --help`.{_of_script(exc)}")
        return 2
    except click.ClickException as exc:
        complain(exc.format_message())
        return 2
    except ElasticdError as exc:
        complain(str(exc))
        return exc.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 128 + signal.SIGINT
    except BrokenPipeError:
        return _without_reader()
    except SystemExit as exc:
        # click and rich make a 1 of a broken pipe; click puts something else in stdout's place.
        if sys.stdout is streams[0] and not isinstance(exc.__context__, BrokenPipeError):
            raise
        sys.stdout, sys.stderr = streams
        return _without_reader()
    except OSError as exc:
        # This is not our bug: a full disk, no free descriptors, or a deleted folder.
        what = f"{exc.strerror or exc}{f': {exc.filename}' if exc.filename else ''}"
        complain(f"The system refused a call ({what}): mend that, and try again.")
        _silence(sys.stdout)
        return 1


def complain(sentence: str) -> None:
    """Print one plain sentence about an error on stderr; do nothing if stderr cannot be written."""
    try:
        print("elasticd: " + " ".join(sentence.split()), file=sys.stderr, flush=True)  # noqa: T201
    except (OSError, ValueError):
        _silence(sys.stderr)


def _prepare_streams() -> None:
    """Make every text printable, even with undecodable bytes or with closed standard streams."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The descriptor must be open: otherwise the next opened file would get the output.
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _meant(exc: click.UsageError) -> click.UsageError | None:
    """Return an error that names the flags that begin like an unknown flag, or else similar flags.

    click's own message is worse: click also compares the dashes, so that `--etcd` is similar to
    `--onec`, and it lists each flag a second time with underscores.
    """
    if not isinstance(exc, click.NoSuchOption) or exc.ctx is None:
        return None
    wanted = exc.option_name.replace("_", "-").lstrip("-")
    params = exc.ctx.command.params
    names = sorted(
        name.removeprefix("--")
        for param in params
        for name in (*param.opts, *param.secondary_opts)
        if name.startswith("--") and "_" not in name
    )
    near = [name for name in names if name.startswith(wanted)]
    near = near or difflib.get_close_matches(wanted, names, n=2, cutoff=0.7)
    meant = " or ".join(f"'--{name}'" for name in near)
    hint = f" Did you mean {meant}?" if meant else ""
    return click.UsageError(f"No such option {exc.option_name!r}.{hint}", exc.ctx)


def _of_script(exc: click.UsageError) -> str:
    """Return where to write flags of a script, if an unknown flag may belong to the script."""
    is_run = exc.ctx is not None and exc.ctx.command.name == "run"
    if is_run and isinstance(exc, click.NoSuchOption):
        return " Flags of the script itself come after it: `elasticd run [FLAGS] SCRIPT [ARGS]`."
    return ""


def _without_reader() -> int:
    """Return the exit code if the reader of a pipe has ended, as in `elasticd logs JOB | head`."""
    _silence(sys.stdout)
    return 128 + signal.SIGPIPE


def _silence(stream: TextIO) -> None:
    """Prevent the interpreter's last flush from failing on a stream that cannot be written."""
    with suppress(OSError, ValueError):
        stream.flush()
        return
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


if __name__ == "__main__":
    sys.exit(main())

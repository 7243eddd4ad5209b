"""The flags of `elasticd run`: all of torchrun's (2.13), and ours.

Every flag is plain text until `request` reads it; the table here only has the spelling of each.
torchrun takes dash and underscore forms and reads `PET_<NAME>` from the environment; so do we, for
all flags. A flag wins over the environment, and the environment over the default. All words after
the script belong to the script.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from elasticd.cli import parse_value
from elasticd.cli.etcd_flags import etcd_parameters
from elasticd.store.api import NODE_LEASE_TTL_S

__all__ = ["CONTEXT", "FLAGS", "Flag", "layered", "parameters", "parse_known"]

CONTEXT = {"allow_interspersed_args": False, "max_content_width": 100}
"""The first word that is no flag is the script; all words after it belong to the script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag. Its value is text, or a bool if `is_switch`."""

    name: str
    help: str
    short: str = ""
    metavar: str = ""
    is_switch: bool = False
    is_many: bool = False
    is_torchrun: bool = True
    """True if the flag reads PET_<NAME>; our own flags read ELASTICD_<NAME>."""

    @property
    def dest(self) -> str:
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        return f"{'PET' if self.is_torchrun else 'ELASTICD'}_{self.dest.upper()}"


def _own(name: str, help: str, metavar: str = "", **more: bool) -> Flag:
    return Flag(
        name=name,
        help=help,
        metavar=metavar,
        is_torchrun=False,
        is_switch=more.get("is_switch", not metavar),
        is_many=more.get("is_many", False),
    )


FLAGS: tuple[Flag, ...] = (
    # The program and the number of workers
    Flag(
        name="nnodes",
        metavar="N|MIN:MAX",
        help="Number of nodes, or the range that the job may run with.  [1]",
    ),
    Flag(
        name="nproc-per-node",
        metavar="N|auto|gpu|cpu|xpu",
        help="Workers on each node.  [1]",
    ),
    Flag(name="module", short="m", is_switch=True, help="SCRIPT is a module, as in `python -m`."),
    Flag(name="no-python", is_switch=True, help="SCRIPT is a program, not a Python script."),
    Flag(name="run-path", is_switch=True, help="Same as without: the warm pool always does."),
    Flag(name="role", metavar="NAME", help="Value of ROLE_NAME in the workers.  [default]"),
    _own(
        "node-label",
        "Use only nodes with this label; if given several times, with all of them.",
        "K=V",
        is_many=True,
    ),
    _own("priority", "Priority: gets nodes before waiting jobs with a lower number.  [0]", "N"),
    _own(
        "env",
        "Set this variable for the workers; `K` alone copies its value from here.",
        "K[=V]",
        is_many=True,
    ),
    _own(
        "preload",
        "Modules that are imported once, before workers are forked: those that the script was "
        "seen to import (auto), only torch (none), or this list.  [auto]",
        "auto|none|M,...",
    ),
    _own("python", "Interpreter of the workers (also PYTHON_EXEC).", "FILE"),
    _own("cwd", "Working folder of the workers on each node; SCRIPT is not searched there.", "DIR"),
    # The cluster and the job
    _own("job", "Name of the job; --rdzv-id is the same.  [made from the script's name]", "NAME"),
    _own("local-agents", "Number of agents on this machine; each acts as a node.  [1]", "N"),
    _own("join", "Let this machine join the job --job until the job ends.", is_switch=True),
    _own("detach", "Submit the job and return.", is_switch=True),
    _own(
        "slots",
        "With --join: number of workers that this machine can run.  [--nproc-per-node]",
        "N",
    ),
    _own("node-id", "With --join: stable name of this machine.  [its host name]", "NAME"),
    Flag(
        name="local-addr", metavar="ADDR", help="Address at which other nodes reach this machine."
    ),
    Flag(
        name="standalone", is_switch=True, help="Run on this machine only, even if --etcd is given."
    ),
    Flag(name="rdzv-id", metavar="NAME", help="Same as --job."),
    Flag(
        name="rdzv-backend",
        metavar="etcd|...",
        help="`etcd` or `etcd-v2`: same as --join with --etcd set to --rdzv-endpoint. elasticd "
        "needs no other backend.",
    ),
    Flag(name="rdzv-endpoint", metavar="HOST:PORT", help="See --rdzv-backend."),
    Flag(
        name="rdzv-conf",
        metavar="K=V,...",
        help="Sets --formation-timeout by join_timeout, and --join-window by last_call_timeout.",
    ),
    # Faults
    Flag(
        name="max-restarts",
        metavar="N",
        help="Number of restarts after errors of the script, for the whole job; torchrun's "
        "default is 0.  [3]",
    ),
    _own(
        "max-node-losses",
        "Number of restarts after lost nodes and killed workers; -1: no limit.  [100]",
        "N",
    ),
    _own(
        "lease-ttl",
        f"Within this time the loss of a silent node is noticed.  [{NODE_LEASE_TTL_S:g}]",
        "S",
    ),
    _own(
        "isolation-limit",
        "A node that cannot reach etcd stops its workers after this time.  [60]",
        "S",
    ),
    _own(
        "formation-timeout",
        "A node that has not started its workers after this time is left out.  [60]",
        "S",
    ),
    _own(
        "progress-timeout",
        "In-process mode: a worker without progress for this time, outside state.pause, counts as"
        " hung; 0: no limit; a frozen worker is found all the same.  [60]",
        "S",
    ),
    _own(
        "output-timeout",
        "Restart mode: the workers count as hung if no rank writes output for this time.  [never]",
        "S",
    ),
    _own(
        "on-nan",
        "In-process mode: what to do about non-finite gradients.  [ignore]",
        "stop|skip|ignore",
    ),
    _own(
        "compare-every",
        "In-process mode: compare the ranks' parameters bit for bit every N commits; 0: never.  "
        "[after 1, 2, 4 ... commits, but for rounding]",
        "N",
    ),
    _own(
        "on-late",
        "In-process mode: what to do about a node for which all others wait in each step; drain: "
        "take out such nodes, one at a time, never below MIN.  [report]",
        "report|drain",
    ),
    # Checkpoints, which survive the loss of all nodes
    _own(
        "checkpoint",
        "Save checkpoints to this folder or URL (s3://, gs://, abfs://), and continue from the "
        "newest.",
        "URL",
    ),
    _own(
        "checkpoint-every",
        "How often a snapshot is taken: 60s, 5m, 1h, or 100steps.  [60s]",
        "TIME|STEPS",
    ),
    _own(
        "checkpoint-upload-every",
        "With --checkpoint-every 1steps (each step is held in memory): how often a snapshot is "
        "uploaded.  [60s]",
        "TIME",
    ),
    _own(
        "mirror-bandwidth",
        "Limit for the snapshots of a sharded state that a node sends to the next node: 200MB/s, "
        "1GiB/s.  [no limit]",
        "RATE",
    ),
    _own(
        "storage-options",
        "Options of the URL's fsspec file system; a secret as env:NAME or file:PATH.",
        "JSON",
    ),
    _own(
        "checkpoint-keep",
        "Keep this number of the newest checkpoints, at least 2; 0: keep all.  [3]",
        "N",
    ),
    _own("checkpoint-keep-every", "Also keep the first checkpoint of each STEPS steps.", "STEPS"),
    _own(
        "checkpoint-timeout",
        "A failed request to the storage is repeated for this time.  [120]",
        "S",
    ),
    _own(
        "checkpoint-copy",
        "How a snapshot is copied: while the step waits, or during the next step.  [auto]",
        "auto|blocking|overlapped",
    ),
    _own(
        "tensorboard",
        "Write the numbers given to `commit` and `elasticd.progress` to event files in this "
        "folder or URL (s3://, gs://, abfs://); --storage-options hold for it too.",
        "URL",
    ),
    _own(
        "autoscale",
        "Size the job by the policy in this file; without --etcd the run starts an autoscaler, "
        "too.",
        "FILE",
    ),
    _own(
        "prometheus",
        "With --autoscale: the Prometheus to ask for metrics.  [the agents of this run]",
        "URL",
    ),
    _own("join-window", "Nodes that join within this time become one change.  [0.2]", "S"),
    Flag(
        name="shutdown-timeout",
        metavar="S",
        help="Time from SIGTERM to SIGKILL in a planned stop (or set "
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT).  [30]",
    ),
    Flag(
        name="signals-to-handle",
        metavar="NAME,...",
        help="Signals that stop the job gracefully.  [SIGTERM,SIGINT,SIGHUP,SIGQUIT]",
    ),
    # Output and logs
    Flag(name="log-dir", metavar="DIR", help="Run folder.  [./elasticd-runs]"),
    _own(
        "log-max",
        "Disk space for each stream of a rank in a generation, such as 100M or 2G; the middle of "
        "a longer stream is dropped.  [no limit]",
        "SIZE",
    ),
    Flag(
        name="redirects", short="r", metavar="0-3|R:0-3,...", help="Streams that go to files only."
    ),
    Flag(
        name="tee",
        short="t",
        metavar="0-3|R:0-3,...",
        help="Streams of all ranks that are shown, too.",
    ),
    Flag(
        name="local-ranks-filter", metavar="R,...", help="Show only these local ranks of each node."
    ),
    _own(
        "bundle",
        "If the job fails, write an `elasticd bundle` of it to this folder or file.",
        "URL",
    ),
    _own("json", "State changes and summary as JSON lines.", is_switch=True),
    _own("quiet", "Show no state changes, only the workers' output and a failure.", is_switch=True),
    _own("dry-run", "Print the JobSpec, and start nothing.", is_switch=True),
    # Flags of torchrun without a meaning here; each prints one line that says why
    Flag(name="monitor-interval", metavar="S", help="(no meaning here)"),
    Flag(name="start-method", metavar="NAME", help="(no meaning here)"),
    Flag(name="event-log-handler", metavar="NAME", help="(no meaning here)"),
    Flag(name="node-rank", metavar="N", help="(no meaning here)"),
    Flag(name="master-addr", metavar="ADDR", help="(no meaning here)"),
    Flag(name="master-port", metavar="PORT", help="(no meaning here)"),
    Flag(name="logs-specs", metavar="NAME", help="(no meaning here)"),
    Flag(name="duplicate-stdout-filters", metavar="TEXT,...", help="(no meaning here)"),
    Flag(name="duplicate-stderr-filters", metavar="TEXT,...", help="(no meaning here)"),
    Flag(name="numa-binding", metavar="MODE", help="(no meaning here)"),
    Flag(name="virtual-local-rank", is_switch=True, help="(refused)"),
)


def parameters() -> list[click.Parameter]:
    """Build click's parameters; each defaults to None, so that a given flag can be recognised."""
    made: list[click.Parameter] = []
    for flag in FLAGS:
        spelled = [f"--{flag.name}"]
        if "-" in flag.name:
            spelled.append(f"--{flag.dest}")
        if flag.short:
            spelled.append(f"-{flag.short}")
        kind: dict[str, Any] = {"is_flag": True, "flag_value": True, "type": bool}
        if not flag.is_switch:
            # torchrun accepts empty text; it is the default of many of its flags.
            is_any = flag.is_torchrun or flag.is_many
            kind = {"metavar": flag.metavar, "multiple": flag.is_many}
            kind["type"] = str if is_any else parse_value.not_empty
        made.append(click.Option([*spelled, flag.dest], default=None, help=flag.help, **kind))
    made.extend(etcd_parameters())
    made.append(click.Argument(["script"], required=False))
    made.append(click.Argument(["script_args"], nargs=-1, type=click.UNPROCESSED))
    return made


def layered(values: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the flags' values, or else the environment's values; None if neither has a value."""
    found = dict(values)
    for flag in FLAGS:
        if values.get(flag.dest) not in (None, ()):
            continue
        text = environ.get(flag.variable)
        if flag.is_many:
            found[flag.dest] = ()
        elif flag.is_switch:
            found[flag.dest] = text is not None and text not in ("", "0")
        else:
            found[flag.dest] = text if text else None
    return found


def parse_known(args: Sequence[str]) -> dict[str, Any]:
    """Parse arguments without a command."""
    command = click.Command("run", params=parameters(), context_settings=CONTEXT)
    return dict(command.make_context("run", list(args)).params)

"""`elasticd agent`: the daemon of a node."""

import contextlib
import ctypes
import os
import re
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from elasticd.channel.fork_server import SERVER_VARIABLE
from elasticd.cli import parse_value
from elasticd.cli.etcd_flags import Values, cluster_of, etcd_options, required_settings
from elasticd.cli.label_flags import labels_of
from elasticd.cli.machine import gpu_count, own_address, reachable_address
from elasticd.cli.parse_value import checked_lease_ttl_s, not_empty
from elasticd.control.local_run.run_folder import make_private
from elasticd.errors import CallError, ElasticdError
from elasticd.records.ids import JobName, NodeId, checked_name
from elasticd.store.api import NODE_LEASE_TTL_S
from elasticd.telemetry import log
from elasticd_agent.pod.downward_api import node_name
from elasticd_agent.pod.keeper_wait import default_keeper_wait_s
from elasticd_agent.pod.mounts import check_shared_memory, check_temporary
from elasticd_agent.pod.worker_user import WorkerUser, find_worker_user
from elasticd_agent.settings import AgentSettings, ForwardedRanks

__all__ = ["agent", "agent_settings", "default_node_id", "end_with"]

DAY_S = 86400.0
LOG_LINES_KEPT = 2_000
"""How many lines of the agent's own log stay in memory for `elasticd bundle`: half a megabyte."""
PR_SET_PDEATHSIG = 1


@click.command(short_help="Serve this machine's slots.")
@etcd_options
@click.option(
    "--node-id",
    metavar="NAME",
    type=not_empty,
    help="Stable name of this machine.  [its host name]",
)
@click.option(
    "--slots",
    metavar="N|auto",
    type=not_empty,
    help="Number of workers at the same time.  [auto: its GPUs, else 1]",
)
@click.option(
    "--local-addr",
    "--local_addr",
    metavar="ADDR",
    type=not_empty,
    help="Address at which other nodes reach this machine.",
)
@click.option(
    "--log-dir", "--log_dir", metavar="DIR", type=not_empty, help="Run folder.  [./elasticd-runs]"
)
@click.option(
    "--job", metavar="NAME", type=not_empty, help="Serve only this job, and end when it ends."
)
@click.option(
    "--lease-ttl",
    metavar="S",
    type=not_empty,
    help=f"Within this time the loss of this node is noticed.  [{NODE_LEASE_TTL_S:g}]",
)
@click.option(
    "--keep-ended",
    metavar="DAYS",
    type=not_empty,
    help="Remove the records of jobs that have been over for this time; 0: never.  [7]",
)
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Label of this node.")
@click.option(
    "--http-port",
    metavar="N",
    type=not_empty,
    help="Port of logs, /metrics and /sd (docs/metrics.md).  [chosen]",
)
@click.option(
    "--probe-port",
    metavar="N",
    type=not_empty,
    help="Answer /healthz and /readyz at this port, too, without TLS.",
)
@click.option(
    "--keeper-wait",
    metavar="S",
    type=not_empty,
    help="At the end, wait up to this time for keepers that still save.  [65 as process 1, else 0]",
)
@click.option(
    "--forward-output",
    metavar="none|rank0|all",
    type=not_empty,
    help="Copy the output of these ranks to stdout.  [none]",
)
@click.option(
    "--event-log",
    metavar="DIR",
    type=not_empty,
    help="Record the events and effects of each job in this folder.",
)
@click.option("--log-level", type=click.Choice(list(log.LEVELS)), help="[info]")
@click.option("--log-json/--log-console", "is_log_json", default=None, help="[by terminal]")
@click.option(
    "--worker-user",
    metavar="NAME|UID",
    type=not_empty,
    help="Run all processes of jobs as this user; the agent itself starts as root.",
)
@click.option("--parent-pid", type=int, default=None, hidden=True)
def agent(**values: Any) -> int:
    """Serve this machine's slots to the jobs in etcd, until it is stopped.

    Each flag also reads ELASTICD_<FLAG> from the environment. After SIGTERM the agent tells the
    others that it leaves, and the jobs continue without this node at once.
    """
    environ = os.environ
    if values["parent_pid"] is not None:
        end_with(values["parent_pid"])
    user = _worker_user(values, environ)
    settings, named = agent_settings(values, environ, user), node_name(environ)
    if user is not None:
        _begin_as(user, settings)
    environ.pop(SERVER_VARIABLE, None)  # Workers do not need it.
    level = values["log_level"] or environ.get("ELASTICD_LOG_LEVEL", "info")
    if level not in log.LEVELS:
        raise CallError(f"ELASTICD_LOG_LEVEL={level} is none of {', '.join(log.LEVELS)}.")
    log.configure(_is_log_json(values, environ), level, has_thread=True, lines_kept=LOG_LINES_KEPT)
    if named is not None and not _text(values, environ, "node_id"):
        named.explain()
    check_temporary(environ.get("TMPDIR", ""))
    check_shared_memory()
    from elasticd_agent.main import run

    return int(run(settings))


def agent_settings(
    values: Values, environ: Mapping[str, str], user: WorkerUser | None = None
) -> AgentSettings:
    """Build the settings from flags, then ELASTICD_* of the environment, then defaults.

    `user` is the user of `--worker-user`; missing folders are created for this user.

    Raises:
        CallError: a value cannot be used; the message says which and why.
    """
    hint = " (On one machine alone, `elasticd run` starts both.)"
    store = required_settings(values, environ, who="An agent", hint=hint)
    job = _text(values, environ, "job")
    run_folder = Path(_text(values, environ, "log_dir") or "elasticd-runs").absolute()
    event_log = _text(values, environ, "event_log")
    lease_ttl_s = checked_lease_ttl_s(_number(values, environ, "lease_ttl", NODE_LEASE_TTL_S))
    keep_ended_days = _number(values, environ, "keep_ended", 7.0)
    if keep_ended_days < 0.0:
        raise CallError(f"--keep-ended {keep_ended_days:g} is below 0: give days, or 0 for ever.")
    http_port, probe_port = (_port(values, environ, name) for name in ("http_port", "probe_port"))
    if probe_port and probe_port == http_port:
        raise CallError(f"--probe-port {probe_port} is also the --http-port: give another one.")
    return AgentSettings(
        environ=environ if user is None else user.environ_of(environ),
        node=_node(values, environ),
        host=socket.gethostname(),
        store=store,
        cluster=cluster_of(values, environ),
        slots=_slots(_text(values, environ, "slots") or "auto", environ),
        run_folder=_folder(run_folder, "run folder", "--log-dir", user),
        job=JobName(checked_name("--job", job)) if job else None,
        keep_ended_s=keep_ended_days * DAY_S,
        lease_ttl_s=lease_ttl_s,
        http_port=http_port,
        probe_port=probe_port,
        keeper_wait_s=_number(values, environ, "keeper_wait", default_keeper_wait_s()),
        # A worker user's agent refuses a fork server of the agent's user, so it starts its own.
        fork_server=environ.get(SERVER_VARIABLE, "") if user is None else "",
        forwarded=_forwarded(_text(values, environ, "forward_output") or "none"),
        labels=labels_of(
            "--label", values["labels"] or environ.get("ELASTICD_LABELS", "").split(",")
        ),
        event_log=(
            _folder(Path(event_log).absolute(), "event log", "--event-log", user)
            if event_log
            else None
        ),
        # Last, since this may ask the resolver: an error in the call itself is reported at once.
        address=_address(values, environ, store.endpoints),
    )


def _address(values: Values, environ: Mapping[str, str], endpoints: Sequence[str]) -> str:
    given = parse_value.host("--local-addr", _text(values, environ, "local_addr"))
    return reachable_address(given, endpoints) if given else own_address(endpoints)


def _folder(path: Path, what: str, flag: str, user: WorkerUser | None) -> Path:
    """Create a folder; whether a worker user can write to it is checked in `_begin_as`."""
    return make_folder(path, what, flag) if user is None else user.give_folder(path)


def _worker_user(values: Values, environ: Mapping[str, str]) -> WorkerUser | None:
    """Return the user of `--worker-user`, if it was given.

    Raises: CallError: no worker may run as this user; the message says why.
    """
    text = _text(values, environ, "worker_user")
    if text and values["parent_pid"] is not None:
        raise CallError(
            "--worker-user is for `elasticd agent`: the agents of `elasticd run` run a job as the "
            "one who calls it. Unset ELASTICD_WORKER_USER, and call it as that user."
        )
    return find_worker_user(text) if text else None


def _begin_as(user: WorkerUser, settings: AgentSettings) -> None:
    """Act as the worker user from now on.

    Raises: CallError: the agent cannot act as this user here; the message says why.
    """
    folders = {"--log-dir": settings.run_folder}
    if settings.event_log is not None:
        folders["--event-log"] = settings.event_log
    user.begin(folders)


def default_node_id(host: str) -> str:
    """Turn a host name into a valid key segment."""
    usable = re.sub(r"[^A-Za-z0-9._-]+", "-", host)[:63].strip("._-")
    return usable or "node"


def _node(values: Values, environ: Mapping[str, str]) -> NodeId:
    """Return the given id, else the id of the pod's node, else an id made from the host name."""
    given, named = _text(values, environ, "node_id"), node_name(environ)
    if not given and named is not None:
        return named.node
    return NodeId(checked_name("--node-id", given or default_node_id(socket.gethostname())))


def make_folder(path: Path, what: str, flag: str) -> Path:
    """Create a folder that a flag names, and check that this process can write to it.

    Raises: CallError: the folder cannot be created or written; the message says why.
    """
    try:
        make_private(path)
        probe = path / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as exc:
        raise CallError(
            f"The {what} {path} cannot be written ({exc.strerror}): choose another {flag}, or "
            "mount a volume there."
        ) from exc
    return path


def end_with(parent_pid: int) -> None:
    """Let the kernel send SIGTERM to this process when its parent ends, however the parent ends.

    Raises: ElasticdError: the parent has ended already.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:
        raise _Orphaned("The process that started this one is gone.")


class _Orphaned(ElasticdError):
    pass


def _slots(text: str, environ: Mapping[str, str]) -> int:
    if text == "auto":
        return gpu_count(environ) or 1
    if count := parse_value.decimal(text):
        return count
    raise CallError(f"--slots {text} is not a number above 0 or `auto`.")


def _forwarded(text: str) -> ForwardedRanks:
    with contextlib.suppress(ValueError):
        return ForwardedRanks(text)
    raise CallError(f"--forward-output {text} is none of {', '.join(ForwardedRanks)}.")


def _is_log_json(values: Values, environ: Mapping[str, str]) -> bool | None:
    flag, text = values["is_log_json"], environ.get("ELASTICD_LOG_JSON", "")
    if flag is not None or not text:
        return None if flag is None else bool(flag)
    if text not in ("0", "1"):
        raise CallError(f"ELASTICD_LOG_JSON={text} is neither 1 (JSON) nor 0 (for a console).")
    return text == "1"


def _text(values: Values, environ: Mapping[str, str], name: str) -> str:
    flag = values.get(name)
    return str(flag) if flag is not None else environ.get(f"ELASTICD_{name.upper()}", "")


def _port(values: Values, environ: Mapping[str, str], name: str) -> int:
    text = _text(values, environ, name)
    if not text:
        return 0
    if (port := parse_value.decimal(text)) and port <= parse_value.LAST_PORT:
        return port
    raise CallError(
        f"--{name.replace('_', '-')} {text} is not a port: give a number from 1 to "
        f"{parse_value.LAST_PORT}."
    )


def _number(values: Values, environ: Mapping[str, str], name: str, default: float) -> float:
    text = _text(values, environ, name)
    if not text:
        return default
    with contextlib.suppress(ValueError):
        number = float(text)
        if 0 <= number < float("inf"):
            return number
    raise CallError(f"--{name.replace('_', '-')} {text} is not a number, 0 or more.")

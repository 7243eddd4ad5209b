"""The request of a call of `elasticd run`, from its flags and environment.

This module starts no process and asks no service. If there is a password of etcd, the process hides
itself.

The hard part is the meaning of torchrun's flags without torchrun's rendezvous. Flags about the job
are mapped. Flags about parts of torchrun that do not exist here print one line that says so.
"""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elasticd.bundle.destination import Destination, destination_of
from elasticd.cli import parse_value
from elasticd.cli.etcd_flags import cluster_of, log_dir_of
from elasticd.cli.machine import reachable_address
from elasticd.cli.run.autoscaler.autoscale_flags import autoscale_flag, prometheus_flag
from elasticd.cli.run.entry_flags import entry_of, env_of, workers_of
from elasticd.cli.run.fault_flags import with_faults
from elasticd.cli.run.flags import layered, parse_known
from elasticd.cli.run.job_placement import node_labels_of, priority_of
from elasticd.cli.run.rendezvous_flags import RDZV_ETCD, Mode, nodes, rdzv_conf, where
from elasticd.cli.run.storage_flags import checkpoint_of, owner_of, tensorboard_of
from elasticd.control.logs.console import ConsoleChoice, parse_filter, parse_streams
from elasticd.errors import CallError, NotSupported
from elasticd.records.ids import JobName, checked_name
from elasticd.records.job import JobSpec, preload_of
from elasticd.store.api import NODE_LEASE_TTL_S, StoreSettings

__all__ = ["Mode", "RunRequest", "parse", "read_request"]

LEAST_LOG_BYTES = 1 << 20
NEVER_A_WISH = (
    *(signal.SIGKILL, signal.SIGSTOP),  # No process can handle them.
    signal.SIGCHLD,  # The kernel sends it whenever a process of the run ends.
    signal.SIGPIPE,  # It is sent with each write to a connection that is gone.
    # A handler would return to the instruction that failed, for ever.
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL),
)
"""Signals that cannot be a person's wish that the job ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    mode: Mode
    job: JobName | None
    """The job's name; None if it is made from the script's name."""
    draft: JobSpec
    """The job's spec without the fields that its submission fills in: see `spec`."""
    store: StoreSettings | None = None
    """The settings of etcd; None in local mode."""
    cluster: str = "default"
    local_agents: int = 1
    slots: int = 1
    node_id: str = ""
    local_address: str = ""
    lease_ttl_s: float = NODE_LEASE_TTL_S
    run_folder: str = ""
    """The run folder; empty if it was not given."""
    autoscale: str = ""
    """The policy file by which the job is sized; empty if it has none."""
    prometheus: str = ""
    """The Prometheus that a local run's autoscaler asks; empty for the agents."""
    signals: tuple[str, ...] = ()
    console: ConsoleChoice = field(default_factory=ConsoleChoice)
    bundle: Destination | None = None
    """The destination of a bundle if the job fails; None for no bundle."""
    is_detached: bool = False
    is_json: bool = False
    is_quiet: bool = False
    is_dry_run: bool = False
    notes: tuple[str, ...] = ()
    """One line for each flag that was given and has no effect."""

    def spec(
        self, *, name: JobName, uid: str, here: str, submitter: str = "", at_unix_s: float = 0.0
    ) -> JobSpec:
        """Return the job's spec for submission; `here` is the folder in which the call was made."""
        has_daemons = self.mode is Mode.SUBMIT
        return replace(
            self.draft,
            name=name,
            uid=uid,
            # With --join each host uses its own folders, as torchrun does.
            cwd=self.draft.cwd or ("" if self.mode is Mode.JOIN else here),
            run_folder=str(Path(here, self.run_folder)) if self.run_folder and has_daemons else "",
            submitted_by=submitter,
            submitted_at_unix_s=at_unix_s,
        )


def parse(
    args: Sequence[str], environ: Mapping[str, str], *, gpus: int = 0, cpus: int = 1
) -> RunRequest:
    """Parse a whole call; `gpus` and `cpus` are the numbers of devices of this machine.

    Raises: CallError: a flag's value is wrong; the message says what to write instead.
    """
    return read_request(parse_known(args), environ, gpus=gpus, cpus=cpus)


def read_request(
    given: Mapping[str, Any], environ: Mapping[str, str], *, gpus: int, cpus: int
) -> RunRequest:
    """Turn the values that click parsed into a request.

    Raises: CallError: a flag's value is wrong; the message names the flag and the value, and says
        what to write instead.
    """
    values = layered(given, environ)
    _refuse(values)
    mode, store = where(values, environ)
    job = _job(values, mode)
    local_agents = parse_value.whole("--local-agents", values["local_agents"], 1, least=1)
    workers = workers_of(values["nproc_per_node"], mode, gpus=gpus, cpus=cpus)
    least, most = nodes(values, mode, local_agents)
    conf = rdzv_conf(values["rdzv_conf"])
    lease_ttl_s = parse_value.checked_lease_ttl_s(
        parse_value.seconds("--lease-ttl", values["lease_ttl"], NODE_LEASE_TTL_S)
    )
    draft = replace(
        _draft(values, environ, job, mode),
        min_nodes=least,
        max_nodes=most,
        workers_per_node=workers,
    )
    return RunRequest(
        mode=mode,
        job=JobName(checked_name("--job", job)) if job else None,
        draft=with_faults(draft, values, environ, conf),
        store=store,
        cluster=cluster_of(given, environ) if mode is not Mode.LOCAL else "default",
        local_agents=local_agents,
        slots=_slots(values["slots"], workers),
        node_id=checked_name("--node-id", values["node_id"]) if values["node_id"] else "",
        local_address=_local_address(values["local_addr"] or "", mode, store),
        lease_ttl_s=lease_ttl_s,
        run_folder=log_dir_of(given, environ),
        autoscale=autoscale_flag(values, is_join=mode is Mode.JOIN),
        prometheus=prometheus_flag(values, environ, is_submit=mode is Mode.SUBMIT),
        signals=_signals(values["signals_to_handle"]),
        console=_console(values),
        bundle=_bundle(values),
        is_detached=_detached(values, mode),
        is_json=values["json"],
        is_quiet=values["quiet"],
        is_dry_run=values["dry_run"],
        notes=_notes(values, conf, mode),
    )


def _draft(
    values: Mapping[str, Any], environ: Mapping[str, str], job: str | None, mode: Mode
) -> JobSpec:
    """Return a spec with the fields about the script, its nodes and its storage."""
    entry_kind, entry, args = entry_of(values, environ)
    preload, learns_imports = preload_of((values["preload"] or "").split(","))
    owner = owner_of(job, str(values["script"]))
    return JobSpec(
        name=JobName(""),
        uid="",
        entry_kind=entry_kind,
        entry=entry,
        args=args,
        node_labels=node_labels_of(values["node_label"], mode),
        priority=priority_of(values["priority"], mode),
        cwd=values["cwd"] or "",
        env=env_of(values["env"], environ),
        preload=preload,
        learns_imports=learns_imports,
        role=values["role"] or "default",
        log_max_bytes=parse_value.size("--log-max", values["log_max"], least=LEAST_LOG_BYTES),
        checkpoint=checkpoint_of(values, owner),
        tensorboard=tensorboard_of(values, owner),
        is_local=mode is not Mode.SUBMIT,
    )


# --- one function for each flag ---------------------------------------------------------------


def _refuse(values: Mapping[str, Any]) -> None:
    if values["virtual_local_rank"]:
        raise NotSupported(
            "--virtual-local-rank is not supported: set the device from LOCAL_RANK in the script."
        )
    if values["start_method"] not in (None, "spawn", "fork", "forkserver"):
        raise CallError(
            f"--start-method {values['start_method']} is none of spawn, fork, forkserver."
        )
    if values["module"] and values["no_python"]:
        raise CallError("--module and --no-python contradict each other: take one of them.")
    if not values["script"]:
        raise CallError("No script was given: `elasticd run [FLAGS] SCRIPT [ARGS]`.")


def _local_address(text: str, mode: Mode, store: StoreSettings | None) -> str:
    """Return the address of this host's agent as given, which only a call with --join has."""
    given = text and parse_value.host("--local-addr", text)
    if given and mode is Mode.JOIN and store is not None:
        return reachable_address(given, store.endpoints)
    return given


def _job(values: Mapping[str, Any], mode: Mode) -> str | None:
    job: str | None = values["job"] or values["rdzv_id"]
    if job == "none":  # This is torchrun's default.
        job = None
    if mode is Mode.JOIN and not job:
        raise CallError("--join needs --job NAME: the same name on every host.")
    return job


def _slots(text: str | None, workers: int) -> int:
    slots = parse_value.whole("--slots", text, workers or 1, least=1)
    if workers > slots:
        raise CallError(
            f"--nproc-per-node {workers} is more than --slots {slots}: give a slot to each."
        )
    return slots


def _console(values: Mapping[str, Any]) -> ConsoleChoice:
    ranks = values["local_ranks_filter"]
    return ConsoleChoice(
        redirects=parse_streams("--redirects", values["redirects"] or "0"),
        tee=parse_streams("--tee", values["tee"] or "0"),
        local_ranks=parse_filter(ranks) if ranks else None,
    )


def _signals(text: str | None) -> tuple[str, ...]:
    names = tuple(
        part.strip().upper() for part in (text or "SIGTERM,SIGINT,SIGHUP,SIGQUIT").split(",")
    )
    for name in names:
        number = parse_value.signal_of(name)
        if number is None or number in NEVER_A_WISH:
            raise CallError(f"--signals-to-handle {name}: that is not a signal one can handle.")
    return names


def _detached(values: Mapping[str, Any], mode: Mode) -> bool:
    if values["detach"] and mode is not Mode.SUBMIT:
        raise CallError("--detach needs daemons to run the job: give --etcd, without --join.")
    return bool(values["detach"])


def _bundle(values: Mapping[str, Any]) -> Destination | None:
    if not values["bundle"]:
        return None
    if values["detach"]:
        raise CallError(
            "--bundle is for a call that waits for the job's end: leave --detach out, or call "
            "`elasticd bundle` when it has failed."
        )
    return destination_of(values["bundle"], "--bundle")


def _notes(values: Mapping[str, Any], conf: Mapping[str, str], mode: Mode) -> tuple[str, ...]:
    backend = values["rdzv_backend"]
    reasons = {
        "monitor_interval": "workers' exits are reported at once, nothing is polled",
        "start_method": "workers are forked from a warm pool, or spawned where that cannot be",
        "event_log_handler": "`elasticd why` tells what happened",
        "node_rank": "ranks are agreed through etcd, and stay with the survivors",
        "master_addr": "each generation publishes its own store's address",
        "master_port": "each generation publishes its own store's port",
        "logs_specs": "logs are in <run folder>/<job>/gen-<n>/",
        "duplicate_stdout_filters": "use grep on <run folder>/<job>/gen-<n>/",
        "duplicate_stderr_filters": "use grep on <run folder>/<job>/gen-<n>/",
        "numa_binding": "workers are not bound to CPUs; use numactl with --no-python",
    }
    notes = [
        f"--{dest.replace('_', '-')} has no effect: {reason}."
        for dest, reason in reasons.items()
        if values[dest] is not None
    ]
    if backend is not None and backend not in RDZV_ETCD:
        notes.append(
            f"--rdzv-backend {backend} has no effect: nodes agree through etcd, see --etcd."
        )
    if mode is not Mode.JOIN:
        given = [flag for flag in ("slots", "node_id") if values[flag] is not None]
        notes += [f"--{flag.replace('_', '-')} has no effect without --join." for flag in given]
    notes += [
        f"--rdzv-conf {key} has no effect here."
        for key in conf
        if key not in ("join_timeout", "last_call_timeout")
    ]
    return tuple(notes)

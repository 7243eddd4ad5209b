"""The hosts of a job: the meaning of torchrun's rendezvous flags without torchrun's rendezvous.

This module starts no process and asks no service.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from elasticd.cli import parse_value
from elasticd.cli.etcd_flags import endpoints, settings_from
from elasticd.errors import CallError
from elasticd.store.api import StoreSettings

__all__ = ["RDZV_ETCD", "Mode", "nodes", "rdzv_conf", "where"]

RDZV_ETCD = ("etcd", "etcd-v2", "etcdv2", "etcd3")
OF_SEVERAL_HOSTS = ("rdzv_endpoint", "rdzv_backend", "node_rank", "master_addr")
"""Flags that, together with --nnodes, mean hosts that all make the same call."""


class Mode(StrEnum):
    LOCAL = "local"
    """Run on a private etcd and agents on this machine."""
    SUBMIT = "submit"
    """Submit to the daemons of a cluster."""
    JOIN = "join"
    """Start an agent here for this job alone; other hosts make the same call."""


def where(
    values: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[Mode, StoreSettings | None]:
    """Return the mode of the job, and the settings of its cluster's etcd.

    Raises: CallError: flags contradict each other, or a flag needs another one.
    """
    is_join = bool(values["join"])
    backend, endpoint = values["rdzv_backend"], values["rdzv_endpoint"]
    if values["standalone"]:
        if is_join:
            raise CallError("--standalone and --join contradict each other: take one of them.")
        return Mode.LOCAL, None
    if backend in RDZV_ETCD:
        if not endpoint:
            raise CallError(f"--rdzv-backend {backend} needs --rdzv-endpoint HOST:PORT.")
        if values.get("etcd") is None:
            # In torchrun, too, every host of the job makes the same call.
            values = {**values, "etcd": ",".join(endpoints(endpoint))}
            is_join = True
    store = settings_from(values, environ)
    if store is None and is_join:
        raise CallError("--join needs --etcd http://HOST:2379, the same on every host.")
    if store is None:
        return Mode.LOCAL, None
    if values["local_agents"] is not None:
        raise CallError(
            "--local-agents is for one machine alone, with an etcd of its own: leave out --etcd, "
            "or use --join."
        )
    return (Mode.JOIN if is_join else Mode.SUBMIT), store


def nodes(values: Mapping[str, Any], mode: Mode, local_agents: int) -> tuple[int, int]:
    """Return the least and the largest number of nodes that the job wants.

    Raises: CallError: the numbers are malformed, or the hosts would not find each other.
    """
    text = values["nnodes"]
    if text is None:
        return 1, (local_agents if mode is Mode.LOCAL else 1)
    parts = text.split(":")
    least, most = (parse_value.decimal(part) for part in (parts[0], parts[-1]))
    if len(parts) > 2 or least is None or most is None:
        raise CallError(f"--nnodes {text} is neither a number nor a range MIN:MAX, as in 1:4.")
    if least < 1:
        raise CallError(f"--nnodes {text}: a job has at least 1 node.")
    if least > most:
        raise CallError(
            f"--nnodes {text}: MIN, {least}, is above MAX, {most}: write MIN:MAX, as in 1:4."
        )
    if mode is Mode.LOCAL and least > local_agents:
        raise CallError(
            f"--nnodes {text} needs {least} agents: give --local-agents {least} to have them on "
            "this machine, or --etcd for several machines."
        )
    if mode is Mode.LOCAL and most > local_agents and not values["standalone"]:
        _refuse_strangers(values)
    return least, most


def rdzv_conf(text: str | None) -> Mapping[str, str]:
    """Read `--rdzv-conf`, which has the form KEY=VALUE,KEY=VALUE.

    Raises: CallError: the text is malformed.
    """
    conf = {}
    for pair in filter(None, (text or "").split(",")):
        key, sign, value = pair.partition("=")
        if not sign or not key.strip() or not value.strip():
            raise CallError(f"--rdzv-conf {text!r} is not of the form KEY=VALUE,KEY=VALUE.")
        conf[key.strip()] = value.strip()
    return conf


def _refuse_strangers(values: Mapping[str, Any]) -> None:
    """Refuse a call that is meant for several hosts if these hosts would not find each other.

    Each host would train a world of its own, and all would write the same checkpoints.

    Raises: CallError: the flags ask for several hosts, and name no etcd.
    """
    given = [name for name in OF_SEVERAL_HOSTS if values[name] is not None]
    if not given:
        return
    job = values["job"] or values["rdzv_id"] or "NAME"
    raise CallError(
        f"--nnodes {values['nnodes']} with --{given[0].replace('_', '-')} means several hosts, and "
        "without etcd each would train by itself: call `elasticd run --join --etcd "
        f"http://HOST:2379 --job {job} --nnodes {values['nnodes']} ...` on each host, or add "
        "--standalone for this machine alone."
    )

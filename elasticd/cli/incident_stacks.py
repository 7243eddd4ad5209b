"""Reads the stacks of an incident from this machine's disk or from a node."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from elasticd.bundle.agent_client import AgentClient
from elasticd.bundle.job_files import is_folder_of
from elasticd.bundle.mask import Mask
from elasticd.bundle.secret import secrets_of_job
from elasticd.bundle.stacks import stacks_from_agent, stacks_from_disk, stacks_name
from elasticd.control.report.hang_stacks import hang_stacks
from elasticd.control.report.report import JobReport
from elasticd.errors import NotFound, Unavailable
from elasticd.records.ids import Generation, NodeId
from elasticd.records.job import JobSpec
from elasticd.records.member import Node
from elasticd.store.api import StoreSettings

__all__ = ["local_stacks_by_change", "read_stacks"]

PAGE_ROOM = 4 << 20
"""The limit in characters for all stacks of one page that is written to a file."""


class RecordPort(Protocol):
    """The part of a record source that this module needs."""

    @property
    def settings(self) -> StoreSettings | None: ...
    @property
    def run_folder(self) -> Path: ...


def read_stacks(
    source: RecordPort, spec: JobSpec, generation: Generation, node: NodeId, known: Node | None
) -> str:
    """Return the stacks that a node wrote in a generation; `known` is the node's record, or None.

    In a cluster the function asks the node's agent, and then reads this machine's disk, which may
    have the run folder as well.

    Raises:
        NotFound: there are no such stacks.
        Unavailable: the stacks are on a node that does not answer.
    """
    if source.settings is None:
        return _local_stacks(source, spec, generation, node)
    found = None
    client = AgentClient(known, spec.name, source.settings) if known is not None else None
    name, mask = stacks_name(generation, node), _mask(source, spec)
    if client is not None:
        try:
            found = stacks_from_agent(client, name, mask)
        finally:
            client.close()
    if found is not None:
        return found
    with suppress(NotFound):
        return _local_stacks(source, spec, generation, node)
    if client is None:
        raise Unavailable(f"The stacks are on node {node}, whose agent is gone.")
    if client.is_silent:
        raise Unavailable(f"The stacks are on node {node}, whose agent does not answer.")
    raise NotFound(f"Node {node} does not have them: there is no {name} in its folder of the job.")


def local_stacks_by_change(
    source: RecordPort, report: JobReport
) -> Mapping[Generation, Mapping[NodeId, str]]:
    """Return the stacks of the ranks that hung, by the generation of the change and the node.

    If all ranks were silent these are the stacks of all nodes. The function reads only a run on
    this machine, and only files that exist. If there is no room for all, the newest are kept.
    """
    found: dict[Generation, dict[NodeId, str]] = {}
    room = PAGE_ROOM if source.settings is None else 0
    for change in reversed(report.changes):
        place = hang_stacks(report, change)
        for node in place.nodes if place is not None else ():
            if place is None or room <= 0:
                break
            with suppress(NotFound):
                text = _local_stacks(source, report.spec, place.generation, node)
                room -= len(text)
                path = change.culprit.log_path if change.culprit is not None else ""
                where = path or f"{stacks_name(place.generation, node)} in the job's folder"
                left_out = f"[elasticd] This page has no room for them: see {where}."
                found.setdefault(change.generation, {})[node] = text if room > 0 else left_out
    return found


def _local_stacks(source: RecordPort, spec: JobSpec, generation: Generation, node: NodeId) -> str:
    """Return the stacks from this machine's disk.

    Raises: NotFound: there are no such stacks; the message names the folder that was searched.
    """
    name = stacks_name(generation, node)
    own = [Path(spec.run_folder)] if spec.run_folder else []
    is_cluster = source.settings is not None
    # The records of a local run are beside its files, even in a copy of its run folder.
    folders = [*own, source.run_folder] if is_cluster else [source.run_folder, *own]
    why = f"There is no folder {folders[0] / spec.name} of this run."
    for folder in [run_folder / spec.name for run_folder in folders]:
        if not is_folder_of(folder, spec, is_cluster=is_cluster):
            continue
        try:
            return stacks_from_disk(folder, name, _mask(source, spec))
        except NotFound as exc:
            why = f"The stacks are not in {folder}: {exc}"
    raise NotFound(why)


def _mask(source: RecordPort, spec: JobSpec) -> Mask:
    password = source.settings.password if source.settings is not None else ""
    return Mask(secrets_of_job(spec, os.environ, password))

"""Makes one bundle of a job's records, and of its files from the agents and this machine's disk."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from elasticd import __version__
from elasticd.bundle import collection
from elasticd.bundle.collection import BundleRequest, files_path, worth
from elasticd.bundle.job_files import generation_of, is_folder_of
from elasticd.bundle.mask import Mask, MaskedValue
from elasticd.bundle.masked_records import archived, masked_records
from elasticd.bundle.part import BundledFile, MissingFile, Parts
from elasticd.bundle.secret import secrets_of_job, secrets_of_options
from elasticd.bundle.tarball import LIMIT_BYTES, Tarball
from elasticd.bundle.versions import versions
from elasticd.cli.bundle.texts import missing_text, readme, report_texts
from elasticd.cli.record_source import RecordSource
from elasticd.cli.why.earlier_changes import read_earlier
from elasticd.control import jobs
from elasticd.control.local_run.archive import archive_text
from elasticd.control.progress import read_ranks
from elasticd.control.report.report import JobReport, job_report
from elasticd.errors import ElasticdError, NotSupported
from elasticd.records.codec import decode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import JobSpec
from elasticd.records.member import Node
from elasticd.store.api import KeyValue

__all__ = ["Packed", "pack"]

RESERVE_BYTES = 2 << 20
"""The space for the two lists at the end of the archive."""
CHECKPOINTS_LIMIT_S = 30.0
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    data: bytes
    """The bytes of the .tar.gz file."""
    files: int
    missing: tuple[MissingFile, ...]


def pack(
    source: RecordSource,
    job: JobName,
    *,
    top: str,
    options: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    limit_bytes: int = LIMIT_BYTES,
) -> Packed:
    """Pack all records and files of a job; `top` is the folder to which the archive is unpacked.

    `options` are those of the destination; their values are masked, too.

    Raises: NotFound: there is no such job; the message lists similar names.
    """
    environ = os.environ if environ is None else environ
    spec = jobs.find_spec(source.store, source.keys, job)
    mask = Mask(_secrets(source, spec, options or {}, environ))
    parts, now_unix_s = Parts(), time.time()
    report = _add_records(source, job, mask, parts, now_unix_s)
    wanted = BundleRequest(job=job, mask=mask, failed=_failed(report))
    files = _files(source, spec, report, wanted)
    parts.missing += files.missing
    _lack_output(report, {part.path for part in files.found}, parts)
    _add_checkpoints(spec, environ, mask, parts)
    parts.add("versions/here.json", mask.text(json.dumps(versions(), indent=1)))
    ordered = sorted(files.found, key=lambda part: _order(part.path, wanted, report))
    parts.found += ordered
    return _written(parts, top, now_unix_s, limit_bytes, job, mask)


def _secrets(
    source: RecordSource, spec: JobSpec, options: Mapping[str, object], environ: Mapping[str, str]
) -> list[MaskedValue]:
    password = source.settings.password if source.settings is not None else ""
    found = secrets_of_job(spec, environ, password)
    return [*found, *secrets_of_options(options, environ)]


def _add_records(
    source: RecordSource, job: JobName, mask: Mask, parts: Parts, now_unix_s: float
) -> JobReport | None:
    """Add the job's records from etcd or from an archive, both as sentences and unchanged."""
    keys = source.keys
    stored = source.store.list(keys.job(job)).items
    items, unreadable = masked_records(stored, keys, job, mask)
    for key in unreadable:
        parts.lack(f"record {key}", "it cannot be read: it is damaged")
    what = "the archive of a run" if source.is_archive else "a run that goes on"
    where = f"the cluster {keys.cluster}" if source.settings is not None else what
    report = None
    try:
        report = job_report(items, keys, job)
    except NotSupported as exc:
        parts.lack("status, worlds, incidents and account", str(exc))
    parts.add("README.txt", mask.text(readme(report, job, where, now_unix_s)))
    if report is not None:
        # Another process may have the address of an old agent by now.
        is_over = source.is_archive
        ranks = () if is_over else read_ranks(source.store, keys, report, source.settings)
        is_cluster = source.settings is not None
        earlier = read_earlier(report, source.run_folder, is_cluster=is_cluster)
        texts = report_texts(report, ranks, earlier)
        for path, text in texts.items():
            parts.add(path, mask.text(text))
        if report.time is None:
            parts.lack("account", "no agent has written where the time of its slots went")
    nodes = _nodes_of(report)
    beside = [item for item in source.store.list(keys.nodes).items if _is_of(item, nodes)]
    there, _ = masked_records(beside, keys, job, mask)
    text = archive_text(archived([*items, *there], keys, job))
    parts.add(files_path(job, "records.json"), text)
    return report


def _files(
    source: RecordSource, spec: JobSpec, report: JobReport | None, wanted: BundleRequest
) -> Parts:
    """Ask the agents of the job's nodes for files, and read the job's folder if it is here."""
    parts = Parts()
    if source.is_archive:
        parts.lack("metrics of the agents", "the run is over, and its agents have ended with it")
    else:
        known = _nodes_of(report)
        found = [_decoded(item) for item in source.store.list(source.keys.nodes).items]
        # If no node takes part in the job yet, any node may know why.
        nodes = [node for node in found if node is not None and (node.node in known or not known)]
        answers = collection.from_agents(nodes, source.settings, wanted)
        for each in answers.values():
            parts.found += each.found
            parts.missing += each.missing
        for name in sorted(known - answers.keys()):
            parts.lack(f"node {name}", "it is not registered any more: its agent is gone")
    run_folder = Path(spec.run_folder) if spec.run_folder else source.run_folder
    folder = run_folder / spec.name
    if is_folder_of(folder, spec, is_cluster=source.settings is not None):
        local = collection.from_disk(folder, wanted, {part.path for part in parts.found})
        parts.found += local.found
        parts.missing += local.missing
    elif source.settings is None:
        parts.lack("output of workers, stacks and logs", f"there is no folder {folder}")
    return parts


def _nodes_of(report: JobReport | None) -> set[NodeId]:
    """Return the nodes that took part in the job, as far as the records name them."""
    if report is None:
        return set()
    here = {place.node for place in report.world.nodes} if report.world is not None else set()
    here |= {member.node for member in report.members}
    return here | {incident.node for incident in report.incidents if not incident.is_announced}


def _is_of(item: KeyValue, nodes: set[NodeId]) -> bool:
    return item.key.rpartition("/")[2] in nodes


def _decoded(item: KeyValue) -> Node | None:
    try:
        return decode(Node, item.value)
    except NotSupported:
        return None


def _failed(report: JobReport | None) -> frozenset[tuple[int, int]]:
    if report is None:
        return frozenset()
    failures = [change.culprit for change in report.changes] + [report.status.failure]
    return frozenset((one.generation, one.rank) for one in failures if one is not None)


def _lack_output(report: JobReport | None, paths: set[str], parts: Parts) -> None:
    """List the ranks of the newest world whose output is missing; a file without output is not
    missing.
    """
    if report is None or report.world is None:
        return
    generation, job = report.world.generation, report.spec.name
    lacking = [
        str(place.rank)
        for place in report.world.placements()
        if files_path(job, f"gen-{generation}/rank-{place.rank}.out") not in paths
    ]
    if lacking:
        more = f" and {len(lacking) - 20} more" if len(lacking) > 20 else ""
        what = f"output of rank {', '.join(lacking[:20])}{more} in generation {generation}"
        parts.lack(what, "neither a node that answers nor this machine has it")


def _add_checkpoints(spec: JobSpec, environ: Mapping[str, str], mask: Mask, parts: Parts) -> None:
    """Add a list of the checkpoints, as this machine sees them."""
    if spec.checkpoint is None:
        return
    told: list[object] = []

    def look() -> None:
        from elasticd.cli.bundle.checkpoints import checkpoints_plain

        assert spec.checkpoint is not None
        try:
            told.append(checkpoints_plain(spec.checkpoint, environ))
        except (ElasticdError, OSError) as exc:
            told.append(exc)

    thread = Thread(target=look, name="checkpoints", daemon=True)
    thread.start()
    thread.join(CHECKPOINTS_LIMIT_S)
    if told and not isinstance(told[0], Exception):
        parts.add("data/checkpoints.json", mask.text(json.dumps(told[0], indent=1)))
        return
    silent = f"the storage did not answer within {CHECKPOINTS_LIMIT_S:g} s"
    parts.lack("list of checkpoints", mask.text(str(told[0])) if told else silent)


def _order(path: str, wanted: BundleRequest, report: JobReport | None) -> tuple[int, int, int, str]:
    name = path.removeprefix(files_path(wanted.job, ""))
    newest = report.status.generation if report is not None else 0
    if name != path and generation_of(name) is not None and report is not None:
        newest = report.world.generation if report.world is not None else newest
    return (*worth(name, wanted.failed, newest), path)


def _written(
    parts: Parts, top: str, now_unix_s: float, limit_bytes: int, job: JobName, mask: Mask
) -> Packed:
    tarball = Tarball(top, now_unix_s, limit_bytes)
    taken: list[BundledFile] = []
    for part in parts.found:
        if tarball.add(part.path, part.data, reserve_bytes=RESERVE_BYTES):
            taken.append(part)
        else:
            parts.lack(part.path, f"there is no room for it in {limit_bytes / 1e6:.0f} MB")
    missing = [
        MissingFile(what=mask.text(each.what), why=mask.text(each.why)) for each in parts.missing
    ]
    tarball.add("MISSING.txt", missing_text(missing).encode())
    manifest = {
        "schema": SCHEMA,
        "job": job,
        "made_by": f"elasticd {__version__}",
        "made_at_unix_s": round(now_unix_s, 3),
        "files": [_listed(part) for part in taken],
        "missing": [{"what": each.what, "why": each.why} for each in missing],
    }
    tarball.add("manifest.json", json.dumps(manifest, indent=1).encode())
    return Packed(data=tarball.close(), files=len(taken) + 2, missing=tuple(missing))


def _listed(part: BundledFile) -> Mapping[str, object]:
    return {
        "path": part.path,
        "bytes": len(part.data),
        "of_bytes": part.size or len(part.data),
        "node": part.node,
    }

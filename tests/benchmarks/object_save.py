"""A snapshot of 1 GiB from the hand-over to its commit in S3 on loopback, beside plain boto3.

The server is `object_server`: another process, which keeps bodies in memory. boto3 sends the same
bytes as objects of the keeper's size from as many threads. Once as it comes, where over http each
body is signed by its SHA-256, and once with neither that nor a CRC.
"""

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from elasticd.checkpoint.format.share_layout import PART_BYTES
from elasticd.train.state.state import core_of
from tests.benchmarks.bench import workplace
from tests.benchmarks.call import run
from tests.benchmarks.checkpoint_site import Copied, Job, Keeper, Trained, over, synced
from tests.benchmarks.object_server import BUCKET, served
from tests.benchmarks.report import Figure, Result, Series, percentile

__all__ = ["measure"]

TRIALS = 20
STATE_MIB = 1024
WARM_UP = 4
"""The server has memory for all that is there at a time."""
THREADS = 8
CLEANUP_WAIT_S = 0.5
"""Older checkpoints are deleted, so that the server can use their memory again."""
KEYS = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}
BARE: dict[str, Any] = {
    "s3": {"payload_signing_enabled": False, "addressing_style": "path"},
    "request_checksum_calculation": "when_required",
}
FORMS: Mapping[str, dict[str, Any]] = {
    "signed": {"s3": {"addressing_style": "path"}},
    "unsigned": BARE,
}
TITLES = {"signed": "payload signed", "unsigned": "payload not signed"}


@dataclass(slots=True)
class Taken:
    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Of the keeper, per GB."""
    plain_cpu: list[float] = field(default_factory=list)


class Site:
    """A keeper and a plain client, both with these settings."""

    def __init__(self, folder: Path, endpoint: str, form: str, trained: Trained) -> None:
        settings = FORMS[form]
        self.keeper = Keeper(
            f"s3://{BUCKET}/{form}",
            folder / f"{form}.log",
            env=KEYS,
            options={"endpoint_url": endpoint, "config_kwargs": settings},
        )
        self._trained = trained
        self._job = Job(self.keeper, trained, "blocking")
        self._client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            config=Config(max_pool_connections=64, **settings),
        )
        self._pool = ThreadPoolExecutor(THREADS)

    def save(self) -> tuple[float, float]:
        """Seconds from the hand-over to the commit, and processor time of the keeper."""
        core_of(self._trained.state).step = self._job.step
        self._job.commit()
        before_s, began_s = self.keeper.cpu_s, time.perf_counter()
        self._job.wait()
        return time.perf_counter() - began_s, self.keeper.cpu_s - before_s

    def put(self, data: bytes) -> tuple[float, float]:
        """The same for plain requests, whose objects are gone afterwards."""
        names = [f"plain/{start}" for start in range(0, len(data), PART_BYTES)]
        parts = [data[int(name[6:]) :][:PART_BYTES] for name in names]

        def one(name: str, part: bytes) -> None:
            self._client.put_object(Bucket=BUCKET, Key=name, Body=part, IfNoneMatch="*")

        before_s, began_s = time.process_time(), time.perf_counter()
        list(self._pool.map(one, names, parts))
        took_s, used_s = time.perf_counter() - began_s, time.process_time() - before_s
        for name in names:
            self._client.delete_object(Bucket=BUCKET, Key=name)
        return took_s, used_s

    def close(self) -> None:
        self._job.close()
        self.keeper.close()
        self._pool.shutdown()


def measure(trials: int) -> Result:
    """Both clients in turn, signed and not."""
    os.environ.update(KEYS)
    taken = {form: Taken() for form in FORMS}
    with workplace() as folder, served() as endpoint:
        trained = Trained(STATE_MIB)
        data = bytes(Copied(trained.nbytes).memory.view)
        sites = {form: Site(folder, endpoint, form, trained) for form in FORMS}
        gb = trained.nbytes / 1e9
        try:
            for number in range(WARM_UP + trials):
                for form, site in sites.items():
                    into = taken[form] if number >= WARM_UP else Taken()
                    time.sleep(CLEANUP_WAIT_S)
                    synced()
                    plain_s, plain_cpu_s = site.put(data)
                    ours_s, cpu_s = site.save()
                    into.plain.append(plain_s)
                    into.ours.append(ours_s)
                    into.cpu.append(cpu_s / gb)
                    into.plain_cpu.append(plain_cpu_s / gb)
                    print(f"{form}: plain {plain_s:.2f} s, elasticd {ours_s:.2f} s", flush=True)
        finally:
            for site in sites.values():
                site.close()
    return _result(trials, taken)


def _result(trials: int, taken: Mapping[str, Taken]) -> Result:
    series: list[Series] = []
    figures: list[Figure] = []
    for form, title in TITLES.items():
        found = taken[form]
        ratio = over(found.plain, found.ours, f"{title}: throughput of elasticd / boto3")
        series += [
            Series(name=f"{title}: elasticd, hand-over to commit", values=tuple(found.ours)),
            Series(name=f"{title}: boto3, {THREADS} threads", values=tuple(found.plain)),
            ratio,
            Series(name=f"{title}: the keeper's processor time per GB", values=tuple(found.cpu),
                   unit="core-s"),
            Series(name=f"{title}: boto3's processor time per GB",
                   values=tuple(found.plain_cpu), unit="core-s"),
        ]  # fmt: skip
        figures += [
            Figure(name=f"{title}: throughput / boto3, p50", value=ratio.at(0.5), unit="x",
                   target=0.9, is_least=True),
            Figure(name=f"{title}: throughput / boto3, worst of a hundred",
                   value=ratio.at(0.01), unit="x"),
            Figure(name=f"{title}: the keeper's processor time per GB, p50",
                   value=percentile(found.cpu, 0.5), unit="core-s", target=1.5),
        ]  # fmt: skip
    signing = percentile(taken["signed"].cpu, 0.5) - percentile(taken["unsigned"].cpu, 0.5)
    figures.append(
        Figure(name="signing and CRC of the payload, processor time per GB", value=signing,
               unit="core-s")
    )  # fmt: skip
    return Result(
        name="object_save",
        title=f"Checkpoints: {STATE_MIB} MiB to S3 on loopback",
        command=f"python -m tests.benchmarks.object_save --trials {trials}",
        method=METHOD,
        series=tuple(series),
        figures=tuple(figures),
    )


METHOD = (
    (
        "elasticd: as in `durable_save`, to `s3://` at a small server in a process of its own "
        "([object_server.py](../tests/benchmarks/object_server.py)), which shares the cores, "
        "believes every signature and writes into memory that it used before."
    ),
    (
        f"boto3: `put_object` with `If-None-Match` of as many bytes in objects of "
        f"{PART_BYTES >> 20} MiB from {THREADS} threads; no checksums of blocks, no manifest."
    ),
    (
        "Signed: botocore's defaults, which over http sign each body by its SHA-256 and add a "
        "CRC. Not signed: `payload_signing_enabled` false and `request_checksum_calculation` "
        "`when_required` for both; over https the default signs no body either."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

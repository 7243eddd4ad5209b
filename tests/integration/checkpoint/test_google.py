"""Google's storage by a server that imitates it: who creates wins, and what fails is said.

That objects are read and written as anywhere is in `contract/test_bucket.py`.
"""

from collections.abc import Callable, Iterator

import pytest

from elasticd.checkpoint.commit.committer import CommitOutcome
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket
from elasticd.errors import EnvironmentProblem, Refused, Unavailable
from tests.fixtures.fake_gcs import FakeGcs, GooglePlace, fake_gcs_server
from tests.integration.checkpoint.remote_case import check_hanging_request, check_one_creates
from tests.integration.checkpoint.saving_case import assert_whole, committer, load, save, values

WRITES: dict[str, Callable[[Bucket], object]] = {
    "create": lambda bucket: bucket.create("a", b"1"),
    "replace": lambda bucket: bucket.replace("a", b"1"),
}
VERBS: dict[str, Callable[[Bucket], object]] = {
    **WRITES,
    "read": lambda bucket: bucket.read("a", 10),
}


@pytest.fixture(scope="module")
def server() -> Iterator[FakeGcs]:
    with fake_gcs_server() as found:
        yield found


@pytest.fixture
def place(server: FakeGcs, request: pytest.FixtureRequest) -> GooglePlace:
    return server.new_bucket(request.node.name)


@pytest.mark.parametrize("size", [40, 3 << 20])
def test_of_several_clients_one_creates_the_object(place: GooglePlace, size: int) -> None:
    check_one_creates(place, size)


def test_saves_are_loaded_bit_for_bit(place: GooglePlace) -> None:
    """Two checkpoints, by two clients, and a third that reads them."""
    committer(FsspecBucket(place.url, place.options)).open(1, 0)
    snapshots = [Snapshot(run=1, generation=1, step=step) for step in (10, 20)]
    for snapshot in snapshots:
        assert save(FsspecBucket(place.url, place.options), snapshot) is CommitOutcome.COMMITTED
    bucket = FsspecBucket(place.url, place.options)
    assert load(bucket) == (snapshots[1], values(snapshots[1]))
    assert assert_whole(bucket) == snapshots


def test_object_above_the_drivers_threshold_is_one_request_too(place: GooglePlace) -> None:
    """gcsfs would upload it in pieces from 50 MiB on: left half done they are invisible, and the
    server here creates an object so that is there already."""
    bucket = FsspecBucket(place.url, place.options)
    data = bytes(51 << 20)
    assert bucket.create("steps/a/large", data)
    assert not bucket.create("steps/a/large", data)


@pytest.mark.parametrize("verb", WRITES)
def test_bucket_that_is_missing_is_said_when_it_is_written(server: FakeGcs, verb: str) -> None:
    """gcsfs tells it from an object that is missing only in what it writes."""
    bucket = FsspecBucket(
        "gs://nowhere/run", {"endpoint_url": server.endpoint_url, "token": "anon"}
    )
    with pytest.raises(EnvironmentProblem, match="bucket that does not exist") as caught:
        WRITES[verb](bucket)
    assert "\n" not in str(caught.value) and "gs://nowhere/run/a" in str(caught.value)


@pytest.mark.parametrize("verb", VERBS)
def test_server_that_is_away_is_asked_once(verb: str) -> None:
    """gcsfs would try for half a minute by itself."""
    bucket = FsspecBucket(
        "gs://bucket/run", {"endpoint_url": "http://127.0.0.1:1", "token": "anon"}
    )
    with pytest.raises(Unavailable, match="cannot be reached"):
        VERBS[verb](bucket)


def test_no_credentials_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a program, where the machine has none."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nowhere")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(Refused, match="credentials"):
        FsspecBucket("gs://bucket/run", {"token": "google_default"}).read("a", 10)


@pytest.mark.parametrize("verb", VERBS)
def test_request_that_hangs_ends_by_its_own_limit(
    server: FakeGcs, place: GooglePlace, verb: str
) -> None:
    """The server takes the connection and never answers; afterwards all is as it was."""
    check_hanging_request(place, server.process.pid, VERBS[verb])

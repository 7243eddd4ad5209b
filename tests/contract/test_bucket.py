"""The contract of `Bucket`, kept by a folder, by memory, by S3, Azure and Google; and by
each when retried."""

import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elasticd.checkpoint.storage.bucket import Bucket, ObjectMissing
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket
from elasticd.checkpoint.storage.retry import RetryingBucket, RetryPolicy
from tests.fixtures.azurite import Azurite, azurite_server, take_azure_keys
from tests.fixtures.fake_gcs import FakeGcs, fake_gcs_server
from tests.fixtures.s3 import give_keys, moto_server, new_bucket
from tests.fixtures.scripted_s3 import ScriptedS3

KINDS = ("folder", "memory", "moto", "scripted", "azurite", "google")
BUCKETS = [f"{kind}{more}" for kind in KINDS for more in ("", "-retrying")]
ATOMIC = [name for name in BUCKETS if not name.startswith("moto")]
"""moto looks and writes in two steps, which S3 does not."""
QUICK = RetryPolicy(first_s=0.01, most_s=0.1, limit_s=5.0)
WRITERS = 8
RANGES = ((0, 10, b"0123456789"), (3, 4, b"3456"), (8, 4, b"89"), (10, 4, b""), (500, 4, b""),
          (9, 1, b"9"), (4, 0, b""))  # fmt: skip


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """One moto for all tests of this module; each has a bucket of its own."""
    with moto_server() as endpoint_url:
        yield endpoint_url


@pytest.fixture(scope="module")
def scripted() -> Iterator[tuple[ScriptedS3, FsspecBucket]]:
    """One server and one client for it; each test finds it empty."""
    with ScriptedS3() as s3, pytest.MonkeyPatch.context() as environ:
        give_keys(environ)
        bucket = FsspecBucket(s3.place.url, s3.place.options)
        bucket.delete(["warm"])  # Takes the credentials.
        yield s3, bucket


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """One server for all tests of this module; each has a container of its own."""
    with azurite_server(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="module")
def google() -> Iterator[FakeGcs]:
    """One server for all tests of this module; each has a bucket of its own."""
    with fake_gcs_server() as server:
        yield server


@pytest.fixture(params=BUCKETS)
def bucket(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Bucket:
    kind, _, more = request.param.partition("-")
    inner: Bucket
    if kind == "folder":
        inner = FolderBucket(str(tmp_path / "some" / "folder"))
    elif kind == "memory":
        inner = FsspecBucket(f"memory://{secrets.token_hex(8)}/some", {})
    elif kind == "moto":
        place = new_bucket(request.getfixturevalue("moto"), request.node.name, monkeypatch)
        inner = FsspecBucket(place.url, place.options)
    elif kind == "azurite":
        take_azure_keys(monkeypatch)
        azure = request.getfixturevalue("azurite").new_container(request.node.name)
        inner = FsspecBucket(azure.url, azure.options)
    elif kind == "google":
        gcs = request.getfixturevalue("google").new_bucket(request.node.name)
        inner = FsspecBucket(gcs.url, gcs.options)
    else:
        s3, inner = request.getfixturevalue("scripted")
        s3.objects.clear()
    return RetryingBucket(inner, QUICK) if more else inner


def everything(name: str) -> bool:
    return True


def test_object_reads_back_as_it_was_created(bucket: Bucket) -> None:
    """Also from a view of memory, which is what a part is."""
    data = bytes(range(256)) * 40
    assert bucket.create("steps/a/one.bin", data)
    assert bucket.create("steps/a/two.bin", memoryview(bytearray(data))[5:])
    assert bucket.read("steps/a/one.bin", 1 << 20) == data
    assert bucket.read("steps/a/two.bin", 1 << 20) == data[5:]


def test_created_object_is_never_written_over(bucket: Bucket) -> None:
    """The whole order of the log hangs on it."""
    assert bucket.create("log/1.json", b"first")
    assert not bucket.create("log/1.json", b"second")
    assert bucket.read("log/1.json", 100) == b"first"


def test_large_object_is_created_as_a_small_one_is(bucket: Bucket) -> None:
    """What S3 gets goes another way from a certain size on."""
    data = memoryview(secrets.token_bytes(3 << 20))[1:]
    assert bucket.create("steps/a/large.bin", data)
    assert not bucket.create("steps/a/large.bin", bytes(2 << 20))
    assert bucket.read("steps/a/large.bin", 4 << 20) == data
    bucket.replace("steps/a/large.bin", data[5:])
    assert bucket.read("steps/a/large.bin", 4 << 20) == data[5:]


@pytest.mark.parametrize("bucket", ATOMIC, indirect=True)
def test_of_many_writers_one_creates_the_object(bucket: Bucket) -> None:
    """At the same time, and what stands there afterwards is the winner's."""
    barrier = threading.Barrier(WRITERS)

    def write(number: int) -> bool:
        barrier.wait()
        return bucket.create("log/1.json", b"%d" % number * 1000)

    for _ in range(5):
        with ThreadPoolExecutor(WRITERS) as pool:
            won = list(pool.map(write, range(WRITERS)))
        assert won.count(True) == 1
        assert bucket.read("log/1.json", 9000) == b"%d" % won.index(True) * 1000
        bucket.delete(["log/1.json"])


def test_replaced_object_is_the_new_one(bucket: Bucket) -> None:
    """Where there was none too, and a shorter one leaves nothing of the longer."""
    bucket.replace("log/hint.json", b"a long one")
    assert bucket.read("log/hint.json", 100) == b"a long one"
    bucket.replace("log/hint.json", b"short")
    assert bucket.read("log/hint.json", 100) == b"short"


def test_missing_object_is_missing(bucket: Bucket) -> None:
    """Beside others, in a folder that is not there, and where an object would be the folder."""
    bucket.create("log/1.json", b"x")
    for name in ("log/2.json", "nowhere/1.json", "log/1.json/inside", "log/1.jso"):
        with pytest.raises(ObjectMissing):
            bucket.read(name, 10)
        with pytest.raises(ObjectMissing):
            bucket.read_into(name, 0, memoryview(bytearray(1)))


def test_read_of_a_larger_object_gives_one_byte_more(bucket: Bucket) -> None:
    """So that too large is told from exactly as large, without reading it all."""
    bucket.create("a", b"0123456789")
    assert bucket.read("a", 10) == b"0123456789"
    assert bucket.read("a", 9) == b"0123456789"
    assert bucket.read("a", 3) == b"0123"


def test_empty_object_is_there(bucket: Bucket) -> None:
    """S3 answers a range of it with an error."""
    assert bucket.create("a", b"")
    assert not bucket.create("a", b"")
    assert bucket.read("a", 10) == b""
    assert bucket.read_into("a", 0, memoryview(bytearray(4))) == 0
    assert bucket.read_into("a", 0, memoryview(bytearray())) == 0


def test_range_fills_what_there_is(bucket: Bucket) -> None:
    """What the object does not have stays as it was."""
    bucket.create("a", b"0123456789")
    for start, size, found in RANGES:
        place = bytearray(b"." * (size + 2))
        assert bucket.read_into("a", start, memoryview(place)[1 : size + 1]) == len(found)
        assert place == b"." + found + b"." * (size - len(found) + 1)


def test_deleted_object_is_gone_and_deleting_again_is_no_error(bucket: Bucket) -> None:
    """Whoever deletes may have died in the middle before."""
    for name in ("steps/a/1", "steps/a/2", "steps/b/1"):
        bucket.create(name, b"x")
    for _ in range(2):
        bucket.delete(["steps/a/1", "steps/a/2", "never/there"])
    with pytest.raises(ObjectMissing):
        bucket.read("steps/a/1", 1)
    assert bucket.read("steps/b/1", 1) == b"x"
    assert bucket.create("steps/a/1", b"again")


def test_folder_can_be_emptied_and_filled_by_two_at_a_time(bucket: Bucket) -> None:
    """One removes a checkpoint while another writes beside it: no write is lost or refused."""
    barrier = threading.Barrier(2)

    def fill(mine: int) -> None:
        barrier.wait()
        for turn in range(25):
            assert bucket.create(f"steps/a/{mine}", b"%d" % turn)
            assert bucket.read(f"steps/a/{mine}", 10) == b"%d" % turn
            bucket.delete([f"steps/a/{mine}"])

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(fill, mine) for mine in range(2)]:
            done.result()


def test_list_gives_names_and_sizes_of_a_folder_only(bucket: Bucket) -> None:
    """As `create` takes them; filtered, and not more than asked for."""
    for name, size in (("steps/a/1", 1), ("steps/a/2", 2), ("steps/b/1", 3), ("log/1", 4)):
        bucket.create(name, b"x" * size)
    found = {each.name: each.size for each in bucket.list("steps", 100, everything)}
    assert found == {"steps/a/1": 1, "steps/a/2": 2, "steps/b/1": 3}
    inside = {each.name for each in bucket.list("steps/a", 100, everything)}
    assert inside == {"steps/a/1", "steps/a/2"}
    every = {each.name for each in bucket.list("", 100, everything)}
    assert every == {"steps/a/1", "steps/a/2", "steps/b/1", "log/1"}
    assert len(bucket.list("steps", 2, everything)) == 2
    kept = bucket.list("steps", 1, lambda name: name.endswith("b/1"))
    assert [each.name for each in kept] == ["steps/b/1"]


def test_list_of_what_is_not_there_is_empty(bucket: Bucket) -> None:
    """Also before anything was written at all."""
    assert bucket.list("steps", 10, everything) == []
    bucket.create("steps/a/1", b"")
    assert bucket.list("other", 10, everything) == []


def test_age_of_a_listed_object_is_known(bucket: Bucket) -> None:
    """What is swept must be old; one of age zero or unknown would count as ancient."""
    bucket.create("steps/a/1", b"")
    (found,) = bucket.list("steps", 10, everything)
    assert found.modified_unix_s > 1_500_000_000


def test_many_threads_write_and_read_through_one_bucket(bucket: Bucket) -> None:
    """Each finds its own bytes."""

    def write_and_read(number: int) -> bytes:
        place = bytearray(1000)
        bucket.create(f"steps/a/{number}", b"%03d" % number * 500)
        assert bucket.read_into(f"steps/a/{number}", 300, memoryview(place)) == 1000
        return bytes(place)

    with ThreadPoolExecutor(WRITERS) as pool:
        found = list(pool.map(write_and_read, range(40)))
    assert found == [(b"%03d" % number * 500)[300:1300] for number in range(40)]


def test_url_is_what_people_gave(bucket: Bucket) -> None:
    """It stands in every error."""
    assert bucket.url.startswith(("file:///", "memory://", "s3://", "abfs://", "gs://"))
    assert bucket.url.endswith(("/some", "/some/folder", "/run"))

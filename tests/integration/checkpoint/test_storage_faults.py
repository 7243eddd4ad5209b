"""Saves and loads through an S3 that fails in every way that we know of."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from elasticd.checkpoint.commit.committer import CommitOutcome
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket
from elasticd.checkpoint.storage.retry import RetryingBucket, RetryPolicy
from elasticd.errors import (
    CallError,
    ElasticdError,
    EnvironmentProblem,
    NotSupported,
    Refused,
    Unavailable,
)
from tests.fixtures.patience import patience_s
from tests.fixtures.s3 import give_keys, take_keys
from tests.fixtures.scripted_s3 import BUCKET, RETRY_AFTER_S, Answer, ScriptedS3
from tests.integration.checkpoint.saving_case import (
    assert_whole,
    committer,
    load,
    save,
    uploaded,
    values,
)

pytestmark = pytest.mark.timeout(50)
"""A request that hangs must end by its own limit, which is far below that."""

REQUEST_S = max(0.5, patience_s(0.25))
"""The limit of a request in these tests; a healthy one takes a hundredth of it."""
WARM_UPS = 20
POLICY = RetryPolicy(first_s=0.001, most_s=0.002, limit_s=100.0)

OLD = Snapshot(run=1, generation=1, step=10)
NEW = Snapshot(run=1, generation=1, step=20)

OBJECTS = ("-00000.bin", "/00001-0.json", "/manifest.json", "commits/00", "commits/hint")
"""One of each kind, by a part of its name."""
WRITE_FAULTS = (Answer.SLOW_DOWN, Answer.TOO_MANY, Answer.ERROR, Answer.HANG, Answer.HANG_AFTER,
                Answer.CUT, Answer.CONFLICT, Answer.LOST, Answer.LOST_CONNECTION)  # fmt: skip
READ_FAULTS = (Answer.SLOW_DOWN, Answer.TOO_MANY, Answer.ERROR, Answer.HANG, Answer.CUT,
               Answer.SHORT, Answer.FLIP)  # fmt: skip

USES: dict[str, Callable[[Bucket], object]] = {
    "PUT": lambda bucket: save(bucket, NEW),
    "GET": load,
    "DELETE": lambda bucket: bucket.delete(["steps/a"]),
}


@dataclass(frozen=True, slots=True)
class Site:
    """The server, our way to it, and how long we were made to wait."""

    s3: ScriptedS3
    bare: FsspecBucket
    hasty: FsspecBucket
    """The same, with a short limit for each request."""
    pauses: list[float]

    @property
    def bucket(self) -> RetryingBucket:
        return RetryingBucket(self.bare, POLICY, sleep=self.pauses.append)

    def bucket_for(self, fault: Answer) -> RetryingBucket:
        """Only where requests hang are they worth the risk of a limit that a busy machine meets."""
        inner = self.hasty if fault in (Answer.HANG, Answer.HANG_AFTER) else self.bare
        return RetryingBucket(inner, POLICY, sleep=self.pauses.append)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[ScriptedS3, FsspecBucket, FsspecBucket]]:
    """One server and two clients, which cost more to make than all that a test asks of them."""
    with ScriptedS3() as s3, pytest.MonkeyPatch.context() as environ:
        give_keys(environ)
        bare = FsspecBucket(s3.place.url, s3.place.options)
        bare.delete(["warm"])
        hasty = FsspecBucket(s3.place.url, s3.place.options, request_s=REQUEST_S)
        for _ in range(WARM_UPS):  # The first makes the client, which is no part of a request.
            with contextlib.suppress(Unavailable):
                hasty.delete(["warm"])
                break
        yield s3, bare, hasty


@pytest.fixture
def site(server: tuple[ScriptedS3, FsspecBucket, FsspecBucket]) -> Site:
    s3, bare, hasty = server
    s3.forget()
    s3.objects.clear()
    s3.hung.clear()
    return Site(s3, bare, hasty, [])


def prepared(site: Site) -> None:
    committer(site.bucket).open(1, 0)
    assert save(site.bucket, OLD) is CommitOutcome.COMMITTED


@pytest.mark.parametrize("fault", WRITE_FAULTS)
def test_one_failing_write_of_each_kind_costs_nothing(site: Site, fault: Answer) -> None:
    """Whether or not it took effect, and whatever it was to write."""
    committer(site.bucket).open(1, 0)
    for step, part in enumerate(OBJECTS, 1):
        site.s3.forget()
        site.s3.add(fault, "PUT", part)
        new = Snapshot(run=1, generation=1, step=step)
        assert save(site.bucket_for(fault), new) in (CommitOutcome.COMMITTED, CommitOutcome.ALREADY)
        assert site.s3.count("PUT", part) > 1, "the fault did not happen"
        assert load(site.bare) == (new, values(new))
    assert len(assert_whole(site.bare)) == len(OBJECTS)


@pytest.mark.parametrize("fault", READ_FAULTS)
def test_one_failing_read_of_each_kind_costs_nothing(site: Site, fault: Answer) -> None:
    """What came damaged is asked for again, not believed and not given up."""
    prepared(site)
    assert save(site.bucket, NEW) is CommitOutcome.COMMITTED
    for part in ("-00000.bin", "/manifest.json", "commits/00", "commits/hint"):
        site.s3.forget()
        site.s3.add(fault, "GET", part)
        assert load(site.bucket_for(fault)) == (NEW, values(NEW))
        assert site.s3.count("GET", part) > 0


@pytest.mark.parametrize("fault", READ_FAULTS)
def test_commit_believes_no_fragment_that_came_damaged(site: Site, fault: Answer) -> None:
    """A flipped digit of a checksum is still JSON, and would make the checkpoint useless."""
    committer(site.bucket).open(1, 0)
    uploaded(site.bucket, NEW)
    site.s3.add(fault, "GET", "/00001-0.json")
    bucket = site.bucket_for(fault)
    manifest = committer(bucket).gather(NEW, 2, ())
    assert manifest is not None
    site.bare.create(NEW.manifest, manifest.to_json())  # Somebody else was faster,
    site.s3.add(fault, "GET", "/manifest.json")  # and what we read of it is wrong.
    assert committer(bucket).commit(manifest) is CommitOutcome.COMMITTED
    assert assert_whole(site.bare) == [NEW]


@pytest.mark.parametrize("fault", [Answer.SHORT, Answer.FLIP])
@pytest.mark.parametrize("part", ["-00000.bin", "/manifest.json", "commits/0000000000"])
def test_what_always_comes_damaged_is_never_loaded(site: Site, fault: Answer, part: str) -> None:
    """The older checkpoint is, if it can be."""
    prepared(site)
    assert save(site.bucket, NEW) is CommitOutcome.COMMITTED
    damaged = f"{part}03" if part.startswith("commits") else f"{20:012d}"
    site.s3.add(fault, "GET", damaged, times=1000)
    assert load(site.bucket) == (OLD, values(OLD))
    site.s3.add(fault, "GET", part, times=1000)
    assert load(site.bucket) is None


def test_service_that_asks_for_patience_gets_it(site: Site) -> None:
    """Retry-After is the least that is waited."""
    site.s3.add(Answer.TOO_MANY, "PUT")
    assert site.bucket.create("a", b"1")
    assert [int(pause) for pause in site.pauses] == [RETRY_AFTER_S]
    site.s3.add(Answer.SLOW_DOWN, "PUT")
    assert site.bucket.create("b", b"1")
    assert site.pauses[1] <= POLICY.most_s


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Answer.EXPIRED, Refused),
        (Answer.BAD_TOKEN, Refused),
        (Answer.WRONG_REGION, Refused),
        (Answer.NO_BUCKET, EnvironmentProblem),
        (Answer.NOT_IMPLEMENTED, NotSupported),
    ],
)
@pytest.mark.parametrize("verb", ["PUT", "GET", "DELETE"])
def test_what_time_does_not_heal_is_said_at_once(
    site: Site, fault: Answer, kind: type[ElasticdError], verb: str
) -> None:
    """In one plain sentence, after one request; a missing bucket is no empty log."""
    site.s3.add(fault, verb, times=1000)
    with pytest.raises(kind) as caught:
        USES[verb](site.bucket)
    assert site.pauses == []
    said = str(caught.value)
    assert site.s3.place.url in said
    assert ("credentials" in said) == (fault in (Answer.EXPIRED, Answer.BAD_TOKEN))
    assert "\n" not in said and said.endswith(".") and len(said) < 400


@pytest.mark.parametrize("fault", [Answer.ERROR, Answer.HANG, Answer.SLOW_DOWN, Answer.CUT])
@pytest.mark.parametrize("verb", ["PUT", "GET"])
def test_service_that_never_recovers_is_given_up_within_the_limit(
    site: Site, fault: Answer, verb: str
) -> None:
    """And the log still says what it said."""
    prepared(site)
    site.s3.add(fault, verb, "steps/", times=1000)
    short = RetryingBucket(site.hasty, RetryPolicy(first_s=0.01, most_s=0.02, limit_s=0.1))
    with pytest.raises(Unavailable) as caught:
        USES[verb](short)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    site.s3.forget()
    assert load(site.bare) == (OLD, values(OLD))
    assert save(site.bucket, NEW, writer="11111111") is CommitOutcome.COMMITTED
    assert assert_whole(site.bare) == [OLD, NEW]


def test_request_that_hangs_ends_by_its_own_limit(site: Site) -> None:
    """The driver's own limits are longer, and the thread that waited can go on."""
    site.s3.add(Answer.HANG, "GET", times=2)
    for _ in range(2):
        with pytest.raises(Unavailable, match="in time"):
            site.hasty.read("a", 10)
    assert site.s3.hung.wait(patience_s(10.0))  # We may give up before the server sees that.
    assert site.bare.create("a", b"1") and site.bare.read("a", 10) == b"1"


def test_read_that_may_be_large_does_not_hang_for_longer(site: Site) -> None:
    """A manifest may have 256 MiB; that is no reason to wait minutes for its first byte."""
    site.bare.create("a", b"1")
    site.s3.add(Answer.HANG, "GET", times=2)
    # Time for two tries of ours and a third; two waits of the driver's own 15 s would leave none.
    limit_s = max(10.0, 4 * REQUEST_S)
    bucket = RetryingBucket(site.hasty, RetryPolicy(first_s=0.001, most_s=0.002, limit_s=limit_s))
    assert bucket.read("a", 1 << 40) == b"1"
    assert site.s3.count("GET") >= 3


def test_request_that_trickles_ends_by_its_own_limit(site: Site) -> None:
    """There is always another byte, and never an end."""
    site.bare.create("a", b"x" * 100)
    site.s3.add(Answer.TRICKLE, "GET")
    with pytest.raises(Unavailable, match="in time"):
        site.hasty.read("a", 200)
    assert site.bare.read("a", 200) == b"x" * 100


@pytest.mark.parametrize("fault", [Answer.ERROR, Answer.SLOW_DOWN, Answer.TOO_MANY])
@pytest.mark.parametrize("verb", ["PUT", "GET"])
def test_driver_asks_once(site: Site, fault: Answer, verb: str) -> None:
    """How often to ask again is decided in one place, with the limits of that place."""
    site.s3.add(fault, verb, times=1000)
    with pytest.raises(Unavailable):
        site.bare.create("a", b"1") if verb == "PUT" else site.bare.read("a", 10)
    assert site.s3.seen == [(verb, "run/a")]


def test_save_and_load_ask_for_nothing_but_objects_by_name(site: Site) -> None:
    """No HEAD, no listing, and each object is written in one request."""
    prepared(site)
    assert load(site.bucket) is not None
    assert {verb for verb, _ in site.s3.seen} == {"PUT", "GET"}
    assert all(key for _, key in site.s3.seen)
    written = [key for verb, key in site.s3.seen if verb == "PUT" and "hint" not in key]
    assert len(written) == len(set(written))


def test_object_above_the_drivers_threshold_is_one_request_too(site: Site) -> None:
    """A multipart upload that nobody completes is invisible, and paid for."""
    data = bytes(101 << 20)
    patient = FsspecBucket(site.s3.place.url, site.s3.place.options)
    assert patient.create("steps/a/large", data)
    assert site.s3.seen == [("PUT", "run/steps/a/large")]
    assert not patient.create("steps/a/large", data)


def test_conflict_with_another_write_does_not_count_as_written(site: Site) -> None:
    """S3 answers so while two conditional writes are under way; perhaps none of them ends."""
    site.s3.add(Answer.CONFLICT, "PUT")
    with pytest.raises(Unavailable):
        site.bare.create("a", b"1")
    assert site.bare.create("a", b"1")


def test_log_does_without_the_hint(site: Site) -> None:
    """That it cannot be written is no reason to call a commit a failure."""
    site.s3.add(Answer.EXPIRED, "PUT", "hint", times=1000)
    prepared(site)
    assert "run/commits/hint.json" not in site.s3.objects
    assert load(site.bucket) == (OLD, values(OLD))
    site.s3.objects["run/commits/hint.json"] = b"7000000"
    assert CommitLog(site.bucket).newest_number() == 2


def test_no_credentials_and_no_server_are_told_apart(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one is for the operator, the other may pass."""
    take_keys(monkeypatch)
    with pytest.raises(Refused, match="credentials"):
        FsspecBucket(site.s3.place.url, site.s3.place.options).read("a", 1)
    give_keys(monkeypatch)
    with pytest.raises(Unavailable, match="cannot be reached"):
        FsspecBucket(f"s3://{BUCKET}/run", {"endpoint_url": "http://127.0.0.1:1"}).read("a", 1)
    with pytest.raises(CallError, match="options"):
        FsspecBucket(f"s3://{BUCKET}/run", {"endpoint_url": "nonsense"}).read("a", 1)
    with pytest.raises(CallError, match="colour"):
        FsspecBucket(f"s3://{BUCKET}/run", {"colour": "red"}).read("a", 1)

"""Azure by a real server: who creates wins, and what Azure refuses is said as of any other storage.

That objects are read and written as anywhere is in `contract/test_bucket.py`.
"""

import base64
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from elasticd.checkpoint.commit.committer import CommitOutcome
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket
from elasticd.errors import (
    CallError,
    ElasticdError,
    EnvironmentProblem,
    Fenced,
    Refused,
    Unavailable,
)
from tests.fixtures.azurite import AzurePlace, Azurite, azurite_server, take_azure_keys
from tests.fixtures.cluster import until
from tests.integration.checkpoint.remote_case import check_hanging_request, check_one_creates
from tests.integration.checkpoint.saving_case import (
    assert_whole,
    committer,
    load,
    save,
    values,
)

VERBS: dict[str, Callable[[Bucket], object]] = {
    "create": lambda bucket: bucket.create("a", b"1"),
    "replace": lambda bucket: bucket.replace("a", b"1"),
    "read": lambda bucket: bucket.read("a", 10),
    "read_into": lambda bucket: bucket.read_into("a", 0, memoryview(bytearray(1))),
}


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with azurite_server(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def place(
    azurite: Azurite, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AzurePlace:
    take_azure_keys(monkeypatch)
    return azurite.new_container(request.node.name)


@pytest.mark.parametrize("size", [40, 3 << 20])
def test_of_several_clients_one_creates_the_object(place: AzurePlace, size: int) -> None:
    check_one_creates(place, size)


def test_generations_that_commit_at_once_leave_an_order(place: AzurePlace) -> None:
    """Two write the log at the same time: all that counts is whole, and the older one ends."""
    older, newer = (FsspecBucket(place.url, place.options) for _ in range(2))
    committer(older).open(1, 0)
    barrier = threading.Barrier(2)

    def old() -> CommitOutcome | None:
        barrier.wait()
        try:
            return save(older, Snapshot(run=1, generation=1, step=8))
        except Fenced:
            return None

    def new() -> CommitOutcome:
        barrier.wait()
        committer(newer).open(2, 5)
        return save(newer, Snapshot(run=1, generation=2, step=7), writer="11111111")

    with ThreadPoolExecutor(2) as pool:
        late, fresh = pool.submit(old), pool.submit(new)
        assert fresh.result() is CommitOutcome.COMMITTED
        is_first = late.result() is CommitOutcome.COMMITTED
    newest = Snapshot(run=1, generation=2, step=7)
    assert load(older) == (newest, values(newest))
    assert len(assert_whole(newer)) == 1 + is_first


def test_each_object_is_one_request(azurite: Azurite, place: AzurePlace) -> None:
    """Azure's client would put 65 MiB together from blocks, and ask again by itself."""
    bucket = FsspecBucket(place.url, place.options)
    data = bytes(65 << 20)
    assert bucket.create("steps/a/large", data)
    assert not bucket.create("steps/a/large", data)
    container = place.url.split("/")[2]
    # It writes them down a moment after its answer; the first is the container's.
    until(lambda: len(azurite.requests(container)) >= 3, lambda: azurite.out.read_text())
    assert [each.split("?")[0] for each in azurite.requests(container)][1:] == [
        f"PUT /account1/{container}/some/folder/steps/a/large"
    ] * 2
    assert "comp=block" not in azurite.out.read_text()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        ("container", EnvironmentProblem, "bucket that does not exist"),
        ("name", Refused, "does not take the request"),
        ("key", Refused, "credentials"),
        ("key that is none", Refused, "credentials"),
        ("server", Unavailable, "cannot be reached"),
    ],
)
def test_what_azure_refuses_is_said_at_once(
    azurite: Azurite,
    place: AzurePlace,
    verb: str,
    wrong: str,
    kind: type[ElasticdError],
    words: str,
) -> None:
    """In one plain sentence without a secret; a container that is missing is no empty log."""
    key = base64.b64encode(b"another").decode()
    url, connection = {
        "container": ("abfs://no-such-container/run", azurite.connection_string()),
        "name": ("abfs://No_Such/run", azurite.connection_string()),
        "key": (place.url, azurite.connection_string(key)),
        "key that is none": (place.url, azurite.connection_string("canary")),
        "server": (place.url, place.connection_string.replace(str(azurite.port), "1")),
    }[wrong]
    with pytest.raises(kind, match=words) as caught:
        VERBS[verb](FsspecBucket(url, {"connection_string": connection}))
    said = str(caught.value)
    assert url in said and said.endswith(".") and "\n" not in said and len(said) < 400
    assert "RequestId" not in said and "canary" not in said and azurite.key not in said


@pytest.mark.parametrize(
    ("options", "words"),
    [({}, "account_name"), ({"connection_string": "canary"}, "Connection string")],
)
def test_options_that_lead_nowhere_are_told(
    place: AzurePlace, options: dict[str, str], words: str
) -> None:
    """Before anything is asked."""
    with pytest.raises(CallError, match=words) as caught:
        FsspecBucket(place.url, options)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("verb", ["create", "read"])
def test_request_that_hangs_ends_by_its_own_limit(
    azurite: Azurite, place: AzurePlace, verb: str
) -> None:
    """The server takes the connection and never answers; afterwards all is as it was."""
    check_hanging_request(place, azurite.process.pid, VERBS[verb])


def test_account_may_stand_in_the_url() -> None:
    """As Azure's own programs write it."""
    url = "abfs://container@account.dfs.core.windows.net/a/folder"
    bucket = FsspecBucket(url, {"account_key": base64.b64encode(b"key").decode()})
    assert (bucket.url, bucket._root) == (url, "container/a/folder")
    assert bucket._fs.account_name == "account"

"""Servers that speak S3 in their own way, with the real clients: used rightly, or refused."""

import os
from typing import Any

import pytest
import trustme

from elasticd.checkpoint.commit.committer import CommitOutcome
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.storage.location import open_once
from elasticd.checkpoint.storage.storage_probe import ProbedBucket
from elasticd.errors import Refused
from tests.fixtures.s3 import give_keys
from tests.fixtures.scripted_s3 import Habit, ScriptedS3
from tests.integration.checkpoint.saving_case import assert_whole, load, save

SNAPSHOT = Snapshot(run=1, generation=1, step=10)
LARGE = bytes(range(256)) * 8192
"""What goes by a client of its own."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """Paths of a certificate, its key, and the authority."""
    folder = tmp_path_factory.mktemp("keys")
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    paths = tuple(str(folder / name) for name in ("cert.pem", "key.pem", "ca.pem"))
    own.cert_chain_pems[0].write_to_path(paths[0])
    own.private_key_pem.write_to_path(paths[1])
    authority.cert_pem.write_to_path(paths[2])
    return paths[0], paths[1], paths[2]


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> None:
    give_keys(monkeypatch)


def opened(s3: ScriptedS3, **options: Any) -> tuple[ProbedBucket, list[str]]:
    """A bucket as a keeper has it, and what it says."""
    bucket = open_once(s3.place.url, {**s3.place.options, **options}, os.environ)
    assert isinstance(bucket, ProbedBucket)
    said: list[str] = []
    bucket.say = said.append
    return bucket, said


def over_tls(
    s3: ScriptedS3, keys: tuple[str, str, str], **options: Any
) -> tuple[ProbedBucket, list[str]]:
    return opened(s3, client_kwargs={"verify": keys[2]}, **options)


def assert_saves(bucket: ProbedBucket) -> None:
    """A checkpoint that was saved is whole, large objects too."""
    assert save(bucket, SNAPSHOT) is CommitOutcome.COMMITTED
    found = load(bucket)
    assert found is not None and found[0] == SNAPSHOT
    assert assert_whole(bucket) == [SNAPSHOT]
    assert bucket.create("steps/large", LARGE) and not bucket.create("steps/large", LARGE)
    assert bucket.read("steps/large", len(LARGE)) == LARGE


def test_server_that_does_all_right_is_used_without_a_word(keys: tuple[str, str, str]) -> None:
    """Over https with the framing that botocore takes by itself."""
    with ScriptedS3(keys=keys[:2]) as s3:
        bucket, said = over_tls(s3, keys)
        assert_saves(bucket)
    assert said == []


@pytest.mark.parametrize("habit", [Habit.STORES_FRAMING, Habit.WANTS_LENGTH])
def test_server_that_does_not_know_the_framing_gets_none(
    keys: tuple[str, str, str], habit: Habit
) -> None:
    """Found out before the first write, said once; nothing in the storage is framed."""
    with ScriptedS3(habit, keys=keys[:2]) as s3:
        bucket, said = over_tls(s3, keys)
        assert_saves(bucket)
        assert not any(b"x-amz-checksum" in data for data in s3.objects.values())
        plain, nothing = over_tls(
            s3, keys, config_kwargs={"request_checksum_calculation": "when_required"}
        )
        assert plain.create("steps/other", b"x")
    (sentence,) = said
    assert '"config_kwargs": {"request_checksum_calculation": "when_required"}' in sentence
    assert nothing == [], "as the sentence asks for it"


def test_server_that_gives_the_sum_of_the_whole_with_a_part_is_read() -> None:
    """What is read has checksums of ours; botocore's own would refuse each part of an object."""
    with ScriptedS3(Habit.WHOLE_SUMS) as s3:
        bucket, said = opened(s3)
        assert_saves(bucket)
    assert said == []


@pytest.mark.parametrize(
    ("habits", "said"),
    [
        ([Habit.OVERWRITES], "writes over the object that is there"),
        ([Habit.OVERWRITES, Habit.STORES_FRAMING], "writes over the object that is there"),
        ([Habit.OVERWRITES, Habit.WANTS_LENGTH], "writes over the object that is there"),
        ([Habit.FORGETS], "does not give back what was written"),
    ],
)
def test_server_that_would_lose_checkpoints_is_refused(
    keys: tuple[str, str, str], habits: list[Habit], said: str
) -> None:
    """Before anything is written that somebody could take for a checkpoint."""
    with ScriptedS3(*habits, keys=keys[:2]) as s3:
        bucket, _ = over_tls(s3, keys)
        with pytest.raises(Refused, match=said):
            save(bucket, SNAPSHOT)
        assert s3.objects == {}

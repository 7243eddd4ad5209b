"""What is tried with the storage of checkpoints."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from elasticd.checkpoint.storage.bucket import Data
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.cli.doctor.finding import Verdict
from elasticd.cli.doctor.storage_check import check_bucket, check_storage
from elasticd.errors import ElasticdError


def test_folder_that_is_good_is_left_as_it_was(tmp_path: Path) -> None:
    (found,) = check_storage(f"file://{tmp_path}/new/ck", {})
    assert found.verdict is Verdict.OK
    assert "keeps two writers apart" in found.found
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").touch()
    list(check_storage(f"file://{tmp_path}", {}))
    assert (tmp_path / "mine").exists()


def test_folder_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(ElasticdError, match="/proc"):
        list(check_storage("file:///proc/nope", {}))


class Overwriting(FolderBucket):
    def create(self, name: str, data: Data) -> bool:
        self.replace(name, data)
        return True


class Unlisted(FolderBucket):
    def list(self, prefix: str, limit: int, keep: object) -> list[object]:  # type: ignore[override]
        return []


class Undeleted(FolderBucket):
    def delete(self, names: Iterable[str]) -> None:
        pass


class Garbling(FolderBucket):
    def read_into(self, name: str, start: int, place: memoryview) -> int:
        count = super().read_into(name, start, place)
        if start == 0:
            place[7] ^= 1
        return count


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Overwriting, "writes over the object that is there"),
        (Unlisted, "does not list an object"),
        (Undeleted, "still has an object that was deleted"),
        (Garbling, "does not give back what was written"),
    ],
)
def test_storage_that_cannot_be_relied_on_is_a_problem(
    kind: type[FolderBucket], said: str, tmp_path: Path
) -> None:
    (found,) = check_bucket(kind(str(tmp_path)))
    assert found.verdict is Verdict.PROBLEM
    assert said in found.found and "--checkpoint" in found.advice

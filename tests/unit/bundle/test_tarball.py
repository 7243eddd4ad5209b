"""The file of a bundle: what is in it, and how large it gets."""

import io
import random
import tarfile

from elasticd.bundle.tarball import Tarball


def names(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {each.name: tar.extractfile(each).read() for each in tar}  # type: ignore[union-attr]


def test_files_are_read_back_below_one_folder() -> None:
    """As they were, also an empty one; nobody else may read them."""
    tarball = Tarball("top", 1_000.0)
    assert tarball.add("a/b.txt", b"hello")
    assert tarball.add("empty", b"")
    data = tarball.close()
    assert names(data) == {"top/a/b.txt": b"hello", "top/empty": b""}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert {each.mode for each in tar} == {0o600}


def test_it_never_gets_larger_than_it_may() -> None:
    """What does not shrink is refused when it would; what shrinks still fits."""
    limit = 3 << 20
    tarball = Tarball("top", 0.0, limit)
    noise = random.Random(1).randbytes(400_000)
    taken = [tarball.add(f"{number}", noise[number:] + noise[:number]) for number in range(20)]
    assert 3 <= sum(taken) <= 7
    assert not taken[-1]
    assert tarball.add("zeros", b"0" * 10_000_000)
    assert tarball.add("last", b"x" * 1000, reserve_bytes=0)
    assert not tarball.add("no", b"x" * 1000, reserve_bytes=limit)
    data = tarball.close()
    assert len(data) <= limit
    assert len(names(data)) == sum(taken) + 2

"""Which storage a command takes: any that fsspec knows and that outlives the process that wrote."""

from elasticd.errors import CallError

__all__ = ["check_lasting"]


def check_lasting(url: str, flag: str) -> None:
    """Refuse fsspec's `memory://`, which takes every write and is gone with its process.

    Raises: CallError: the URL is of that kind.
    """
    if url.partition("://")[0] == "memory":
        raise CallError(
            f"{flag} {url} is the memory of one process, gone when that ends: give a folder, "
            "or s3://BUCKET/FOLDER."
        )

"""Which storage a command takes: any that fsspec knows and that outlives the process that wrote."""

import re

from elasticd.errors import CallError

__all__ = ["check_lasting", "check_slashes"]

_ONE_COLON = re.compile(r"(file|local|s3a?|gc?s|abfss?|az|https?):(?!//)/?(.*)", re.IGNORECASE)
"""A URL of which the slashes were forgotten, in whole or in part."""


def check_lasting(url: str, flag: str) -> None:
    """Refuse fsspec's `memory://`, which takes every write and is gone with its process.

    Raises: CallError: the URL is of that kind.
    """
    if url.partition("://")[0] == "memory":
        raise CallError(
            f"{flag} {url} is the memory of one process, gone when that ends: give a folder, "
            "or s3://BUCKET/FOLDER."
        )


def check_slashes(text: str, flag: str) -> None:
    """Refuse `s3:BUCKET/FOLDER`, which would be a folder of this name on this machine.

    Raises: CallError: the text begins like a URL, and is none.
    """
    found = _ONE_COLON.fullmatch(text)
    if found is None:
        return
    scheme, rest = found[1].lower(), found[2]
    is_path = scheme in ("file", "local")
    meant = "the path without a scheme" if is_path else f"{scheme}://{rest}"
    raise CallError(
        f"{flag} {text} is no URL, because two slashes are missing after the colon: give {meant}, "
        f"or ./{text} for a folder of that name."
    )

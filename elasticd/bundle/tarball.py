"""A compressed archive of many files, never larger than its limit."""

import gzip
import io
import tarfile
import zlib

__all__ = ["LIMIT_BYTES", "Tarball"]

LIMIT_BYTES = 50_000_000
"""The size in bytes that most issue trackers accept as an attachment."""
LEVEL = 6
"""The compression level: for training logs it takes a tenth more bytes than 9, and a fifth of the
time."""
PENDING_BYTES = 512 << 10
"""The bytes that are reserved for the compressor's rest, and for the end of the file."""
HEADER_BYTES = 2048


class Tarball:
    """A tarball that grows in memory, because a bundle may have to report a full disk."""

    def __init__(self, top: str, at_unix_s: float, limit_bytes: int = LIMIT_BYTES) -> None:
        """`top` is the folder of all files in the archive."""
        self._top, self._at_unix_s, self._limit = top, at_unix_s, limit_bytes
        self._buffer = io.BytesIO()
        self._gzip = gzip.GzipFile(
            fileobj=self._buffer, mode="wb", compresslevel=LEVEL, mtime=at_unix_s
        )
        self._tar = tarfile.TarFile(fileobj=self._gzip, mode="w", format=tarfile.PAX_FORMAT)

    def add(self, path: str, data: bytes, *, reserve_bytes: int = 0) -> bool:
        """Add a file; return False if there is no room for it beside the reserved bytes."""
        room = self._limit - self._buffer.tell() - PENDING_BYTES - HEADER_BYTES - reserve_bytes
        if len(data) > room and (room <= 0 or len(zlib.compress(data, 1)) > room):
            return False
        entry = tarfile.TarInfo(f"{self._top}/{path}")
        entry.size, entry.mtime, entry.mode = len(data), int(self._at_unix_s), 0o600
        self._tar.addfile(entry, io.BytesIO(data))
        return True

    def close(self) -> bytes:
        """Return the whole file."""
        self._tar.close()
        self._gzip.close()
        return self._buffer.getvalue()

"""The token, the password and the certificates, from the present content of their files.

They rotate while the autoscaler runs, so the files are checked before each evaluation, and read
again if one of them changed. Their contents stay in this module and in the header: no error quotes
them.
"""

import base64
import os
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path

from elasticd.autoscale.prometheus.settings import Endpoint, PrometheusSettings
from elasticd.errors import EnvironmentProblem

__all__ = ["Credentials", "Shown"]

FILE_LIMIT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The credentials that a request sends."""

    authorization: str = field(default="", repr=False)
    """The Authorization header; empty if there is none."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """The texts that no message may contain, even if a server repeats them."""
    context: ssl.SSLContext | None = None


class Credentials:
    """Reads the credential files of one endpoint; one thread uses it."""

    def __init__(self, settings: PrometheusSettings, endpoint: Endpoint) -> None:
        """Keep the settings; no file is read yet."""
        self._settings, self._endpoint = settings, endpoint
        given = (
            settings.bearer_token_file,
            settings.password_file,
            settings.ca_file,
            settings.cert_file,
            settings.key_file,
        )
        self._files = tuple(name for name in given if name)
        self._read_as: tuple[tuple[int, ...], ...] | None = None
        self._shown = Shown()

    def current(self) -> Shown:
        """Return the present credentials: the same object as long as no file has changed.

        Raises: EnvironmentProblem: a file is missing, or has the wrong content.
        """
        are = tuple(_identity(name) for name in self._files)
        if self._read_as != are:
            self._shown = self._read()
            self._read_as = are
        return self._shown

    def _read(self) -> Shown:
        given, authorization = self._settings, ""
        secrets: tuple[str, ...] = ()
        if given.bearer_token_file:
            token = _line(given.bearer_token_file, "bearer token")
            authorization, secrets = f"Bearer {token}", (token,)
        elif given.password_file:
            password = _line(given.password_file, "password")
            pair = base64.b64encode(f"{given.username}:{password}".encode()).decode()
            authorization, secrets = f"Basic {pair}", (pair, password)
        context = self._context() if self._endpoint.is_tls else None
        return Shown(authorization=authorization, secrets=secrets, context=context)

    def _context(self) -> ssl.SSLContext:
        given = self._settings
        try:
            context = ssl.create_default_context(cafile=given.ca_file or None)
        except (OSError, ValueError) as exc:
            raise EnvironmentProblem(
                f"{given.ca_file} is no file of certificates that could be read "
                f"({_why(exc)}): name the CA of Prometheus as PEM."
            ) from exc
        if given.cert_file:
            try:
                # Without this, OpenSSL would ask for a password on the terminal, which a daemon
                # does not have.
                context.load_cert_chain(given.cert_file, given.key_file, password=_no_password)
            except (OSError, ValueError) as exc:
                raise EnvironmentProblem(
                    f"{given.cert_file} with {given.key_file} is no certificate with its key "
                    f"({_why(exc)}): give both as PEM, the key without a password."
                ) from exc
        return context


def _no_password() -> str:
    raise ValueError("the key has a password")


def _identity(name: str) -> tuple[int, ...]:
    try:
        found = os.stat(name)
    except OSError as exc:
        raise EnvironmentProblem(
            f"{name} cannot be read ({exc.strerror}): it is what Prometheus is to be shown."
        ) from exc
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        # Without a writer a read of it would never end, and it is read more than once.
        raise EnvironmentProblem(f"{name} is a device or a pipe: save its content in a file.")
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _line(name: str, what: str) -> str:
    """Return the one line of a file; no error quotes the line."""
    try:
        with Path(name).open("rb") as file:
            content = file.read(FILE_LIMIT_BYTES + 1)
    except OSError as exc:
        raise EnvironmentProblem(f"{name} cannot be read ({exc.strerror}).") from exc
    line = content.strip()
    is_text = all(0x20 <= byte != 0x7F for byte in line)
    if what == "bearer token":
        is_text = is_text and line.isascii() and b" " not in line
    if not line or not is_text or len(content) > FILE_LIMIT_BYTES or not _is_utf8(line):
        raise EnvironmentProblem(f"{name} is no file with one line, the {what} for Prometheus.")
    return line.decode()


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _why(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLError):
        return exc.reason or "not PEM"
    return (exc.strerror if isinstance(exc, OSError) else "") or str(exc)

"""Finds the secrets: values that a job was given, and values whose name in the environment says so.

All values of `--env` and all strings of `--storage-options` count as secrets, whatever their names,
since only the user knows their meaning. In running text two kinds stay readable: well-known
variables (NCCL_DEBUG, CUDA_VISIBLE_DEVICES), and folders in variables whose names say that they are
folders, because a log without its paths is of no use. The job's own record contains no value at
all.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from elasticd.bundle.mask import MARK, MaskedValue
from elasticd.records.job import JobSpec

__all__ = [
    "is_secret_name",
    "masked_args",
    "masked_options",
    "secrets_of_environ",
    "secrets_of_job",
    "secrets_of_options",
    "secrets_of_spec",
]

VALUE_LEAST = 6
"""The least length of a secret in characters; a shorter one would be found in many ordinary
words."""
NAMED_LEAST = 4
"""The least length of a value whose name says that it is a secret."""
NUMBER_LEAST = 10
"""The least length of a value that has only digits."""
FILE_LIMIT_BYTES = 1 << 16

_NAME = re.compile(
    r"secret|passw|passphrase|token|credential|api_?key|access_?key|private_?key|account_?key|"
    r"connection_?string|(^|_)(key|auth|sas|pat|pwd|dsn|cookie|cert)($|_)",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(
    r"(nccl|cuda|torch|omp|gloo|mkl|kmp|lc|tokenizers|triton|hsa|rocm|xla|tf_cpp)_.*|python.*|"
    r"path|home|lang|tz|user|shell|term|pwd|oldpwd|tmpdir|hostname|(ld|library)_.*path|"
    r"endpoint_url|region|region_name|account_name|project",
    re.IGNORECASE,
)
_OF_FOLDER = re.compile(r".*(_|^)(dir|path|root|home|folder|file)", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return whether a value of this name is a secret."""
    return _NAME.search(name.replace("-", "_").replace(".", "_")) is not None


def secrets_of_environ(environ: Mapping[str, str]) -> list[MaskedValue]:
    """Return the values of variables whose names say that they are secret, and the contents of the
    files that such variables name.
    """
    found = []
    for name, value in environ.items():
        if not is_secret_name(name) or _NOT_SECRET.fullmatch(name):
            continue
        known = _content(Path(value)) if value.startswith("/") else ""
        if _is_long(name, known or value):
            found.append(MaskedValue(name=name, value=known or value))
    return found


def secrets_of_job(
    spec: JobSpec, environ: Mapping[str, str], etcd_password: str = ""
) -> list[MaskedValue]:
    """Return all secrets that a reader of this job's output must not see."""
    found = [*secrets_of_spec(spec, environ), *secrets_of_environ(environ)]
    if etcd_password:
        found.append(MaskedValue(name="etcd-password", value=etcd_password))
    return found


def secrets_of_spec(spec: JobSpec, environ: Mapping[str, str]) -> list[MaskedValue]:
    """Return the secrets that a job was given; `environ` has the variables of its options."""
    found = [
        MaskedValue(name=name, value=value)
        for name, value in spec.env.items()
        if _is_long(name, value) and not _is_known(name, value)
    ]
    found += _secrets_of_args((spec.entry, *spec.args))
    for place in (spec.checkpoint, spec.tensorboard):
        if place is not None:
            found += secrets_of_options(place.options, environ)
            found += _passwords(place.url)
    for value in spec.env.values():
        found += _passwords(value)
    return found


def secrets_of_options(
    options: Mapping[str, object], environ: Mapping[str, str]
) -> list[MaskedValue]:
    """Return the strings of options, and the values of `env:NAME` and `file:PATH`."""
    found = []
    for name, value in _strings(options):
        known = value
        if value.startswith("env:"):
            known = environ.get(value[4:], "")
        elif value.startswith("file:"):
            known = _content(Path(value[5:]))
        elif _is_known(name, value):
            known = ""
        if _is_long(name, known):
            found.append(MaskedValue(name=name, value=known))
        found += _passwords(known)
    return found


def masked_options(value: object) -> object:
    """Return options without their values; only the name of a secret (`env:NAME`) stays."""
    if isinstance(value, Mapping):
        return {name: masked_options(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked_options(item) for item in value]
    is_name = isinstance(value, str) and value.startswith(("env:", "file:"))
    return value if is_name or value is None or isinstance(value, bool) else MARK


def masked_args(args: Sequence[str]) -> list[str]:
    """Return a script's arguments without the values of those whose names mean secrets."""
    values = {secret.value for secret in _secrets_of_args(args)}
    return [_without(arg, values) for arg in args]


def _without(arg: str, values: set[str]) -> str:
    if arg in values:
        return MARK
    name, sign, value = arg.partition("=")
    return f"{name}={MARK}" if sign and value in values else arg


def _secrets_of_args(args: Sequence[str]) -> list[MaskedValue]:
    """Return the values of `--api-key=V`, `--api-key V`, `wandb.api_key=V`, and URL passwords."""
    found: list[MaskedValue] = []
    for number, arg in enumerate(args):
        found += _passwords(arg)
        name, sign, value = arg.partition("=")
        if not is_secret_name(name.lstrip("-")) or any(letter in name for letter in "/ \n"):
            continue
        if not sign and name.startswith("-") and number + 1 < len(args):
            value = args[number + 1]
            if value.startswith("--"):
                continue
        if len(value) >= NAMED_LEAST:
            found.append(MaskedValue(name=name.lstrip("-"), value=value))
    return found


def _passwords(text: str) -> list[MaskedValue]:
    """Return the passwords in a URL."""
    if "://" not in text or "@" not in text:
        return []
    with suppress(ValueError):
        password = urlsplit(text).password
        if password:
            both = {password, unquote(password)}
            return [
                MaskedValue(name="password", value=each) for each in both if _is_long("key", each)
            ]
    return []


def _strings(options: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, Mapping):
                yield from _strings(each)
            elif isinstance(each, str):
                yield name, each


def _content(path: Path) -> str:
    """Return the text of a file; empty if the file cannot be read at once."""
    with suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size <= FILE_LIMIT_BYTES:
            return path.read_text(encoding="utf-8").strip()
    return ""


def _is_long(name: str, value: str) -> bool:
    """Return whether the value is longer than words and numbers that occur everywhere."""
    if value.isdecimal():
        return len(value) >= (VALUE_LEAST if is_secret_name(name) else NUMBER_LEAST)
    return len(value.strip()) >= (NAMED_LEAST if is_secret_name(name) else VALUE_LEAST)


def _is_known(name: str, value: str) -> bool:
    """Return whether everybody may see the value: a well-known variable, or a folder."""
    if is_secret_name(name) and not _NOT_SECRET.fullmatch(name):
        return False
    is_folder = _OF_FOLDER.fullmatch(name) and value.startswith(("/", "./", "../", "~"))
    return bool(_NOT_SECRET.fullmatch(name) or is_folder)

"""Removes secrets from text: known secrets, and text that has the form of a secret. Pure.

A known secret is searched for in its own spelling and in those in which programs print text (JSON,
URL, HTML, `repr`). An unknown secret is found only by its form: a password in a URL, a token after
`Bearer`, a private key. No program can find a value that a script prints in a form of its own.
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

__all__ = ["MARK", "OVERLAP_BYTES", "Mask", "MaskedValue"]

MARK = "***"
"""The text that replaces a value."""
OVERLAP_BYTES = 8192
"""The number of bytes that are read before a piece of a text, so that no secret is cut at its
begin."""
LINE_LEAST = 12
"""The least number of characters of a line that counts as a secret of its own, if a secret has
several lines."""

BLOCK_BYTES = 16 << 10
"""The size of one search in bytes, since a search blocks other threads, and an agent must renew its
lease meanwhile."""
_KEY_BEGIN, _KEY_HEAD_BYTES = b"-----BEGIN ", 64

_WORDS = (
    rb"(?:api[_-]?key|secret|passwo?r?d|access[_-]?key|private[_-]?key|account[_-]?key|"
    rb"(?:auth|access|api|hf|hub|bot|session|refresh|security)[_-]?token)"
)
_ENDS = (
    *(each + b"key" for each in (b"_", b"-", b"i", b"s", b"e", b"t")),
    *(each + b"token" for each in (b"_", b"-", b"h", b"s", b"i", b"f", b"b", b"t", b"n", b"y")),
)
"""The endings of the names in `_WORDS`, with the letter before."""
_GITHUB = (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_")
_FORMS: tuple[tuple[tuple[bytes, ...], bytes, bytes], ...] = (
    # Each row has three parts: strings of which a text must contain at least one (in any case of
    # the letters), the form of the secret, and the text that stays before the mark. Most texts
    # contain none of the strings and are not searched ("512 tokens/s" contains none). Every form
    # has a limit and begins with a fixed string, so that a search of a line of a megabyte takes no
    # longer than its length.
    ((b"://",), rb"(?<=://)[^\s/@:'\"]{0,256}:[^\s/@'\"]{1,512}(?=@)", b""),
    (
        (b"bearer ", b"basic "),
        rb"(?i)(\b(?:bearer|basic) {1,3})[a-z0-9._~+/=-]{12,4096}",
        rb"\1",
    ),
    (
        (b"sig=", b"signature=", b"token=", b"key=", b"password=", b"secret=", b"x-amz-"),
        (
            rb"(?i)([?&](?:x-amz-(?:signature|credential|security-token)|sig|signature|token|"
            rb"access_token|api_?key|password|secret)=)[^&\s'\"]{1,4096}"
        ),
        rb"\1",
    ),
    (
        (b"secret", b"passw", *_ENDS),
        (
            rb"(?i)(" + _WORDS + rb"[a-z0-9_]{0,24}[\"']? {0,3}[=:] {0,3}[\"']?)"
            rb"(?!\*\*\*)[^\s\"',;]{6,4096}"
        ),
        rb"\1",
    ),
    (
        (b"--",),
        rb"(?i)((?<!-)--(?!-)[a-z0-9_.-]{0,32}" + _WORDS + rb" {1,3})(?!--)[^\s\"',;]{4,4096}",
        rb"\1",
    ),
    (
        (b"TOKEN", b"_PAT", b"_PASS"),
        rb"((?:TOKEN|_PAT|_PASS)[\"']?(?:=|: {0,3})[\"']?)[^\s\"',;*]{6,4096}",
        rb"\1",
    ),
    (
        (b"AKIA", b"ASIA", b"hf_", *_GITHUB, b"glpat-", b"sk-", b"xox", b"eyJ"),
        (
            rb"\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|hf_[A-Za-z0-9]{20,64}|gh[pousr]_[A-Za-z0-9]{30,255}|"
            rb"glpat-[A-Za-z0-9_-]{16,64}|sk-[A-Za-z0-9_-]{20,256}|xox[abprs]-[A-Za-z0-9-]{10,256}|"
            rb"eyJ[A-Za-z0-9_-]{10,1024}\.[A-Za-z0-9_-]{10,4096}\.[A-Za-z0-9_-]{10,1024})"
        ),
        b"",
    ),
)
_PATTERNS = tuple((marks, re.compile(form), head + MARK.encode()) for marks, form, head in _FORMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedValue:
    """A value that no other person may see, and the name by which its place is marked."""

    name: str
    value: str


class Mask:
    """Replaces all of the known secrets, and text that looks like a secret."""

    def __init__(self, secrets: Iterable[MaskedValue] = ()) -> None:
        found: dict[bytes, bytes] = {}
        for secret in secrets:
            name = re.sub(r"[^A-Za-z0-9_.-]", "_", secret.name)
            label = f"{MARK}{name}{MARK}".encode()
            for value in _parts(secret.value):
                for spelled in _spellings(value):
                    found.setdefault(spelled, label)
        # The longest come first, since one secret may be a part of another.
        self._known = sorted(found.items(), key=lambda each: -len(each[0]))

    def data(self, data: bytes) -> bytes:
        """Return the text without secrets."""
        for value, label in self._known:
            if value in data:  # This test is much faster than `replace` if the value is absent.
                data = data.replace(value, label)
        return b"".join(_without_forms(block) for block in _blocks(_without_keys(data)))

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        data = self.data(text.encode("utf-8", "surrogatepass"))
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # A form ended within a letter.
            return data.decode("utf-8", "replace")

    def plain(self, value: object, kept: frozenset[str] = frozenset()) -> object:
        """Return a JSON value without secrets in its strings; the fields in `kept` stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                name: item if name in kept else self.plain(item, kept)
                for name, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.plain(item, kept) for item in value]
        return value


def _without_forms(data: bytes) -> bytes:
    small = data.lower()
    for needed, pattern, mark in _PATTERNS:
        if any(each in small or each in data for each in needed):
            data = pattern.sub(mark, data)
    return data


def _without_keys(data: bytes) -> bytes:
    """Remove the text between the two lines of a private key, or up to the end."""
    parts, done = [], 0
    while (begin := data.find(_KEY_BEGIN, done)) >= 0:
        head = data.find(b"-----", begin + len(_KEY_BEGIN), begin + _KEY_HEAD_BYTES)
        if head < 0 or b"PRIVATE KEY" not in data[begin:head]:
            parts.append(data[done : begin + len(_KEY_BEGIN)])
            done = begin + len(_KEY_BEGIN)
            continue
        end = data.find(b"-----END", head)
        parts += [data[done : head + 5], MARK.encode()]
        done = len(data) if end < 0 else end
    return b"".join([*parts, data[done:]])


def _blocks(data: bytes) -> Iterator[bytes]:
    """Cut the text, at line ends if there are any, so that other threads can run in between."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at + BLOCK_BYTES, at + 2 * BLOCK_BYTES)
        end = at + 2 * BLOCK_BYTES if end < 0 else end + 1
        yield data[at:end]
        at = end


def _parts(value: str) -> Iterable[str]:
    yield value
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= LINE_LEAST)


def _spellings(value: str) -> Iterable[bytes]:
    texts = (
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        quote(value, errors="surrogatepass"),
        quote(value, safe="", errors="surrogatepass"),
        quote_plus(value, errors="surrogatepass"),
        html.escape(value),
        base64.b64encode(value.encode("utf-8", "surrogatepass")).decode(),
    )
    for text in texts:
        yield text.encode("utf-8", "surrogatepass")
        # A text that UTF-8 cannot express is printed as its original bytes.
        with suppress(UnicodeEncodeError):
            yield text.encode("utf-8", "surrogateescape")

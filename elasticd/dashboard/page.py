"""The page: one file, which is sent unchanged, and the policy for the browser.

The policy names the hashes of the one style and the one script in the page. So no other text runs
as code, whatever a traceback contains, and the page can contact only the process that served it.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["Page", "page"]

_INLINE = re.compile(rb"<(style|script)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    body: bytes
    policy: str
    """The value of Content-Security-Policy."""


@cache
def page() -> Page:
    """Read the dashboard's page from the package."""
    body = files("elasticd.dashboard").joinpath("page.html").read_bytes()
    sources = {"style": "", "script": ""}
    for kind, text in _INLINE.findall(body):
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        sources[kind.decode()] += f" 'sha256-{digest}'"
    policy = (
        f"default-src 'none'; script-src{sources['script']}; style-src{sources['style']}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return Page(body=body, policy=policy)

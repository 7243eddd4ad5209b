"""What an error of a storage driver means to elasticd, by the service's own code if there is one.

The drivers have nothing in common here: botocore keeps the answer in a dict, Azure's library and
gcsfs in attributes, and each may hide it behind a Python error that its fsspec driver raised
instead. So the answer is searched along the chain of causes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fsspec.exceptions import FSTimeoutError

from elasticd.checkpoint.storage.bucket import NeedsLength, ObjectMissing, Throttled
from elasticd.errors import CallError, EnvironmentProblem, NotSupported, Refused, Unavailable

__all__ = ["is_past_the_end", "meaning", "no_bucket", "wrong_options"]

_TAKEN = {"PreconditionFailed", "412", "BlobAlreadyExists"}
_AGAIN = {"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch",
          "OperationAborted", "ConditionalRequestConflict", "Md5Mismatch"}  # fmt: skip
"""Codes with the status of a wrong request although nothing is wrong with it: a conflict is one
with another write that is under way, so it does not say that there is an object."""
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"}
_REFUSED = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
_THROTTLED = {"SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "429", "503",
              "RequestLimitExceeded", "ServiceUnavailable", "ServerBusy"}  # fmt: skip
_OF_CREDENTIALS = {"ClientAuthenticationError", "RefreshError"}
"""Errors of azure.core and google.auth: there are no credentials, or such that no request can be
made with them."""
_SECRET = re.compile(r"((?:access_token|sig|signature)=)[^&\s)]+", re.IGNORECASE)
"""What may be secret in the URL of a request that an error repeats."""
_FORBIDDEN = "Forbidden: "
"""The begin of a gcsfs error that says no more than that."""
_AFTER_LIMIT_S = 300.0
"""The limit of what a service may ask us to wait: nonsense must not stop a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The service's answer; empty if it gave none."""

    code: str = ""
    status: int = 0
    headers: Mapping[str, Any] = field(default_factory=dict)


def meaning(exc: Exception, where: str) -> Exception:
    """Translate a driver's error; FileExistsError means that the object is there already."""
    answer = _answer(exc)
    code, status = answer.code, answer.status
    if isinstance(exc, FileExistsError) or code in _TAKEN or status == 412:
        return FileExistsError(where)
    if isinstance(exc, FSTimeoutError | TimeoutError) or "Timeout" in type(exc).__name__:
        return Unavailable(f"{where} did not answer in time.")
    why = _why(exc)
    if code in _NO_BUCKET:
        return no_bucket(where, exc)
    if isinstance(exc, FileNotFoundError):
        return ObjectMissing(f"There is no {where} ({why}).")
    if (
        isinstance(exc, PermissionError)
        or status in (401, 403)
        or code in _REFUSED
        or (not status and _is_of_credentials(exc))
    ):
        return Refused(
            f"{where} refuses access ({why}): give this process credentials that may read and "
            "write there."
        )
    if code in _THROTTLED or status in (429, 503):
        return Throttled(f"{where} is overloaded ({why}).", after_s=_after_s(answer.headers))
    if status == 411:
        return NeedsLength(
            f"{where} wants to know the length of a body first ({code}: {why}): put "
            '"config_kwargs": {"request_checksum_calculation": "when_required"} into the options.'
        )
    if code not in _AGAIN and (300 <= status < 408 or 410 <= status < 500):
        return Refused(
            f"{where} does not take the request ({code}: {why}): check the URL, and in the options "
            "the endpoint and the region."
        )
    if status == 501:
        return NotSupported(f"{where} lacks what elasticd needs ({code}: {why}): give another URL.")
    if type(exc) in (ValueError, TypeError):  # Not of an answer that is garbled.
        return wrong_options(where, exc)
    return Unavailable(
        f"{where} cannot be reached ({why}): check the URL, the network, and the endpoint in the "
        "options."
    )


def no_bucket(where: str, exc: Exception) -> EnvironmentProblem:
    """Return the error that there is no such bucket, which differs from no such object."""
    return EnvironmentProblem(
        f"{where} is in a bucket that does not exist ({_why(exc)}): create it, or give another URL."
    )


def wrong_options(where: str, exc: Exception) -> CallError:
    """Return the error that the driver does not take the options."""
    return CallError(f"{where} cannot be used with these options ({_why(exc)}): correct them.")


def is_past_the_end(exc: Exception) -> bool:
    """Return whether the request was for a range that begins after the object's end."""
    answer = _answer(exc)
    return answer.status == 416 or answer.code in ("InvalidRange", "416")


def _why(exc: Exception) -> str:
    """Return the error's message on one line. Azure repeats its whole answer after the message."""
    message = " ".join(str(exc).partition("\nRequestId:")[0].split())
    message = _SECRET.sub(r"\1...", message)[:300].rstrip(".! ")
    return (
        message if message.strip(", 0123456789") else f"{type(exc).__name__} {message}".rstrip(" ,")
    )


def _is_of_credentials(exc: Exception) -> bool:
    """Return whether the driver could make no request because it found no credentials."""
    names = {each.__name__ for each in type(exc).__mro__}
    return "Credentials" in type(exc).__name__ or bool(names & _OF_CREDENTIALS)


def _answer(exc: BaseException | None) -> _Answer:
    for _ in range(5):
        if exc is None:
            break
        response = getattr(exc, "response", None)
        if isinstance(response, dict):  # botocore
            meta = response.get("ResponseMetadata", {})
            return _Answer(
                code=str(response.get("Error", {}).get("Code", "")),
                status=int(meta.get("HTTPStatusCode", 0)),
                headers=meta.get("HTTPHeaders", {}),
            )
        status = getattr(exc, "status_code", None)
        if isinstance(status, int):  # azure.core
            code = getattr(exc, "error_code", None)
            return _Answer(
                code=str(getattr(code, "value", code) or ""),
                status=status,
                headers=getattr(response, "headers", None) or {},
            )
        status = str(getattr(exc, "code", ""))
        if type(exc).__name__ == "HttpError" and status.isdigit():  # gcsfs
            return _Answer(code=status, status=int(status))
        if type(exc) is OSError and str(exc).startswith(_FORBIDDEN):
            return _Answer(code="403", status=403)
        exc = exc.__cause__ or exc.__context__
    return _Answer()


def _after_s(headers: Mapping[str, Any]) -> float:
    found = [value for name, value in headers.items() if name.lower() == "retry-after"]
    header = str(found[0]) if found else ""
    return min(float(header), _AFTER_LIMIT_S) if header.isdigit() else 0.0

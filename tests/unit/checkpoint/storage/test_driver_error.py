"""Errors of drivers, as their libraries raise them, and what they mean to us."""

import pytest
from gcsfs.retry import HttpError

from elasticd.checkpoint.storage.bucket import ObjectMissing, Throttled
from elasticd.checkpoint.storage.driver_error import is_past_the_end, meaning
from elasticd.errors import CallError, EnvironmentProblem, NotSupported, Refused, Unavailable

WHERE = "kind://bucket/run/a"


class AzureError(Exception):
    """What azure.core's errors have."""

    def __init__(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"It is {code}.\nRequestId:1\nTime:2\nContent: <?xml?>")
        self.status_code, self.error_code = status, code
        self.response = type("Response", (), {"headers": headers or {}})()


class BotoError(Exception):
    """What botocore's have."""

    def __init__(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"An error occurred ({code})")
        self.response = {
            "Error": {"Code": code},
            "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers or {}},
        }


def google(status: int, message: str) -> HttpError:
    return HttpError({"code": status, "message": message})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BotoError(412, "PreconditionFailed"), FileExistsError),
        (AzureError(409, "BlobAlreadyExists"), FileExistsError),
        (AzureError(412, "ConditionNotMet"), FileExistsError),
        (BotoError(404, "NoSuchBucket"), EnvironmentProblem),
        (AzureError(404, "ContainerNotFound"), EnvironmentProblem),
        (AzureError(409, "ContainerBeingDeleted"), EnvironmentProblem),
        (FileNotFoundError("a"), ObjectMissing),
        (BotoError(403, "AccessDenied"), Refused),
        (BotoError(400, "ExpiredToken"), Refused),
        (AzureError(403, "AuthorizationPermissionMismatch"), Refused),
        (google(401, "Invalid Credentials"), Refused),
        (OSError("Forbidden: b/bucket/o\nIt may not."), Refused),
        (AzureError(400, "InvalidResourceName"), Refused),
        (BotoError(503, "SlowDown"), Throttled),
        (AzureError(503, "ServerBusy"), Throttled),
        (google(429, "rate"), Throttled),
        (AzureError(500, "OperationTimedOut"), Unavailable),
        (AzureError(400, "Md5Mismatch"), Unavailable),
        (BotoError(409, "ConditionalRequestConflict"), Unavailable),
        (google(500, ""), Unavailable),
        (OSError("Connection reset"), Unavailable),
        (TimeoutError(), Unavailable),
        (BotoError(501, "NotImplemented"), NotSupported),
        (ValueError("no such region"), CallError),
    ],
)
def test_same_trouble_of_every_service_means_the_same(
    error: Exception, kind: type[Exception]
) -> None:
    """What to do, in one plain sentence."""
    found = meaning(error, WHERE)
    assert type(found) is kind
    said = str(found)
    assert said.startswith((WHERE, "There is no")) and "\n" not in said
    assert "RequestId" not in said and "()" not in said
    assert kind is FileExistsError or said.endswith(".")


def test_answer_is_found_behind_the_error_that_hides_it() -> None:
    """adlfs says FileNotFoundError of a container that is missing, too."""
    for answer, kind in ((AzureError(404, "ContainerNotFound"), EnvironmentProblem),
                         (AzureError(404, "BlobNotFound"), ObjectMissing)):  # fmt: skip
        hiding = FileNotFoundError("a")
        hiding.__cause__ = answer
        assert type(meaning(hiding, WHERE)) is kind


@pytest.mark.parametrize("error", [BotoError, AzureError])
def test_service_that_asks_for_patience_gets_it(error: type[BotoError] | type[AzureError]) -> None:
    """However it writes the name; not for ever, and not if it is no number."""
    for said, after_s in (("7", 7.0), ("99999", 300.0), ("soon", 0.0)):
        found = meaning(error(503, "ServerBusy", {"Retry-After": said}), WHERE)
        assert isinstance(found, Throttled) and found.after_s == after_s


def test_secret_in_the_url_of_a_request_is_not_repeated() -> None:
    """A token of Google's, a signature of Azure's."""
    for text in ("of /tokeninfo?access_token=canary (no answer)", "at /c/b?sv=1&sig=canary&se=2"):
        said = str(meaning(OSError(text), WHERE))
        assert "canary" not in said and "=..." in said


def test_range_behind_the_end_is_told() -> None:
    """Of every service."""
    for error in (BotoError(416, "InvalidRange"), AzureError(416, "InvalidRange"), google(416, "")):
        assert is_past_the_end(error)
    assert not is_past_the_end(AzureError(404, "BlobNotFound"))

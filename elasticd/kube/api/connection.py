"""Sends requests to one API server, with the official client's authentication and TLS.

The client is imported only here, and only when a connection is made. elasticd uses only the
client's connection pool and token; the client's objects and watches do not fit the operator.
"""

import os.path
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import urllib3

from elasticd import __version__
from elasticd.errors import ElasticdError, EnvironmentProblem, Refused, Unavailable
from elasticd.kube.api.document import document, encoded
from elasticd.kube.api.failure import Failed, Unreached, failure

__all__ = ["ApiServerConnection", "open_connection"]

CONNECT_S, READ_S = 3.0, 10.0
"""The time-outs of a request, to connect and to read, in seconds. A webhook has 10 s by default,
and 30 s at most. The API server waits for the webhook, so a write to an object whose webhook hangs
takes no longer than this time-out."""
AGENT = f"elasticd-operator/{__version__}"


def _nobody(code: int) -> None:
    """Count no request; this is the default counter."""


class ApiServerConnection:
    """A connection to one API server. Several threads may use it."""

    def __init__(
        self,
        pool: urllib3.PoolManager,
        host: str,
        authorization: Callable[[], str],
        told: Callable[[int], None] = _nobody,
    ) -> None:
        """`host` is a URL such as https://10.0.0.1:6443; `authorization` returns that header's
        value.

        `told` is called with the HTTP status of each answer, or with 0 if there was no answer.
        """
        self.host = host.rstrip("/")
        self._pool, self._authorization, self._told = pool, authorization, told

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: object = None,
        *,
        what: str,
        content_type: str = "application/json",
        read_s: float = READ_S,
    ) -> dict[str, Any]:
        """Send one request and return the answer's JSON; `what` names the request in an error.

        `read_s` is the longest time to wait for the answer, in seconds.

        Raises:
            ElasticdError: the errors that `Api` lists.
        """
        with self._open(method, path, query, body, what, content_type, read_s) as answer:
            try:
                found = document(answer.data)
            except ValueError as exc:
                raise Unavailable(
                    f"The API server at {self.host} did not answer with JSON when it was to "
                    f"{what}: is that address an API server's?"
                ) from exc
        if not isinstance(found, dict):
            raise Unavailable(f"The API server at {self.host} did not {what}: it sent no object.")
        return found

    @contextmanager
    def stream(
        self, path: str, query: Mapping[str, str], *, what: str, silence_s: float
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Open an answer without an end; a read fails after `silence_s` seconds without data.

        The answer's head must come as soon as that of any request: an API server sends it at once,
        also if there is nothing to tell.

        Raises: ElasticdError: the errors that `Api` lists; also inside the `with`, if a read fails.
        """
        with self._open("GET", path, query, None, what, "application/json", READ_S) as answer:
            sock = getattr(getattr(answer, "connection", None), "sock", None)
            if sock is not None:
                sock.settimeout(silence_s)
            yield answer

    def close(self) -> None:
        self._pool.clear()

    # --- private ------------------------------------------------------------------------------

    @contextmanager
    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: object,
        what: str,
        content_type: str,
        silence_s: float,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        headers = {"Accept": "application/json", "User-Agent": AGENT}
        if body is not None:
            headers["Content-Type"] = content_type
        answer: urllib3.BaseHTTPResponse | None = None
        try:
            if authorization := self._authorization():
                headers["Authorization"] = authorization
            answer = self._pool.request(
                method,
                self.host + path + _query(query),
                body=encoded(body) if body is not None else None,
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_S, read=silence_s),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            self._told(answer.status)
            if answer.status >= 300:
                raise failure(answer.status, answer.data, answer.headers, host=self.host, what=what)
            yield answer
            answer.release_conn()
            answer = None
        except ElasticdError:
            raise
        except urllib3.exceptions.SSLError as exc:
            self._told(0)
            raise Refused(
                f"The TLS connection to the API server at {self.host} cannot be trusted ({exc}): "
                "look at the CA and the server name of the kubeconfig."
            ) from exc
        except (urllib3.exceptions.HTTPError, OSError) as exc:
            if answer is None:
                self._told(0)
            # A write concerns one object, and may wait for a webhook of that object's namespace.
            is_alone = method != "GET" and isinstance(exc, urllib3.exceptions.ReadTimeoutError)
            kind = Failed if is_alone else Unreached if _is_unsent(exc) else Unavailable
            raise kind(
                f"The API server at {self.host} does not answer to {what} ({_short(exc)}): "
                "try again."
            ) from exc
        finally:
            if answer is not None:
                answer.close()  # The rest of the answer is not needed.


def open_connection(
    kubeconfig: str = "", context: str = "", told: Callable[[int], None] = _nobody
) -> ApiServerConnection:
    """Return a connection to the API server that the configuration names; it sends no request yet.

    Args:
        kubeconfig: a file, or several files joined by colons; if empty, the rights of this pod are
            used.
        context: a context of the file; if empty, the file's current context.
        told: the function that `ApiServerConnection` calls with each HTTP status.

    Raises:
        EnvironmentProblem: there is no such configuration, or the client cannot use it.
    """
    where = f"The kubeconfig {kubeconfig}" if kubeconfig else "The pod's ServiceAccount"
    missing = [path for path in kubeconfig.split(":") if path and not os.path.isfile(path)]
    if kubeconfig and len(missing) == len(kubeconfig.split(":")):
        raise EnvironmentProblem(
            f"There is no kubeconfig {kubeconfig}: give --kubeconfig FILE or set KUBECONFIG."
        )
    from kubernetes import client, config  # 0.6 s, 77 MB

    settings = client.Configuration()
    settings.connection_pool_maxsize = 16
    settings.retries = False
    try:
        if kubeconfig:
            config.load_kube_config(
                config_file=kubeconfig,
                context=context or None,
                client_configuration=settings,
                persist_config=False,
            )
        else:
            config.load_incluster_config(client_configuration=settings)
        pool = client.ApiClient(settings).rest_client.pool_manager
    except Exception as exc:  # The client lets errors of YAML, base64 and files through.
        # If the file is no kubeconfig, these errors tell only where the client's own code failed.
        is_none = isinstance(exc, TypeError | AttributeError | KeyError | IndexError)
        why = "it is no kubeconfig" if is_none else _short(exc)
        raise EnvironmentProblem(
            f"{where} cannot be used ({why}): try it with `kubectl version`."
        ) from exc

    def authorization() -> str:
        try:
            return str(settings.auth_settings().get("BearerToken", {}).get("value") or "")
        except (config.ConfigException, OSError) as exc:
            raise Unavailable(f"{where} has no token now ({_short(exc)}): try again.") from exc

    return ApiServerConnection(pool, str(settings.host), authorization, told)


def _query(query: Mapping[str, str]) -> str:
    given = {key: value for key, value in query.items() if value}
    return "?" + urlencode(given) if given else ""


def _is_unsent(exc: BaseException) -> bool:
    """Return whether the request was not sent, because no connection came about."""
    kinds = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
    return isinstance(exc, kinds)


def _short(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:300].rstrip(".") or type(exc).__name__

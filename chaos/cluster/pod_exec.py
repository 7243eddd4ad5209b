"""Runs one short program in a container, as `kubectl exec` does.

The connection pool of `elasticd.kube.api` speaks plain HTTP, and an exec is a WebSocket. The
official client's own has no time-out while it connects, and may wait for bytes that TLS has read
already; so the frames are read here, with the WebSocket library that the client brings along.
"""

import json
import ssl
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from chaos.error import ChaosError

__all__ = ["NotStarted", "PodExec"]

CONNECT_S = 10.0
ANSWER_S = 30.0
PROTOCOL = "v4.channel.k8s.io"
OUT, ERR, STATUS = 1, 2, 3
"""The first byte of a frame says which stream it is of; the last one comes when all is over."""
LIMIT_BYTES = 1 << 20


class NotStarted(ChaosError):
    """The program surely did not run: no connection came about, or the answer to it was a no."""


class PodExec:
    """Runs programs in pods of one namespace; `configuration` is one of the official client's."""

    def __init__(self, configuration: Any, namespace: str) -> None:
        self._configuration, self._namespace = configuration, namespace

    def run(self, pod: str, container: str, command: Sequence[str]) -> str:
        """Return what the program has printed.

        Raises:
            NotStarted: it could not be started, and nothing was done.
            ChaosError: it did not end in time, ended with an error, or its answer was lost.
        """
        import websocket

        words = [("command", word) for word in command]
        query = urlencode([*words, ("container", container), ("stdout", "1"), ("stderr", "1")])
        path = f"/api/v1/namespaces/{quote(self._namespace)}/pods/{quote(pod)}/exec?{query}"
        url = "ws" + str(self._configuration.host).rstrip("/").removeprefix("http") + path
        token = self._configuration.auth_settings().get("BearerToken", {}).get("value")
        header = [f"Authorization: {token}"] if token else []
        connection: Any = websocket.WebSocket(sslopt=_tls(self._configuration))
        try:
            connection.connect(url, timeout=CONNECT_S, header=header, subprotocols=[PROTOCOL])
            printed, status = _answer(connection, pod)
        except websocket.WebSocketTimeoutException as exc:
            raise ChaosError(f"A program in pod {pod} did not end in {ANSWER_S:.0f} s.") from exc
        except (
            ConnectionRefusedError,
            TimeoutError,  # Of the connection: a later one is an error of websocket's.
            websocket.WebSocketAddressException,
            websocket.WebSocketBadStatusException,
        ) as exc:
            raise NotStarted(f"No program can be run in pod {pod}: {_short(exc)}.") from exc
        except (websocket.WebSocketException, OSError) as exc:
            raise ChaosError(f"No program can be run in pod {pod}: {_short(exc)}.") from exc
        finally:
            connection.shutdown()
        if status.get("status") != "Success":
            told = _short(printed) if printed.strip() else str(status.get("message") or status)
            raise ChaosError(f"A program in pod {pod} ended with an error: {_short(told)}.")
        return printed


# --- private ----------------------------------------------------------------------------------


def _answer(connection: Any, pod: str) -> tuple[str, dict[str, Any]]:
    """Read all that is printed, and the status with which the program ended."""
    from websocket import ABNF

    until_s = time.monotonic() + ANSWER_S
    printed = bytearray()
    while True:
        connection.settimeout(max(until_s - time.monotonic(), 0.001))
        code, frame = connection.recv_data_frame(True)
        if code == ABNF.OPCODE_CLOSE:
            raise ChaosError(f"The connection to a program in pod {pod} ended before it.")
        data = frame.data if code in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) else b""
        if data[:1] and data[0] in (OUT, ERR):
            printed += data[1:]
            if len(printed) > LIMIT_BYTES:
                raise ChaosError(f"A program in pod {pod} printed more than {LIMIT_BYTES} bytes.")
        elif data[:1] and data[0] == STATUS and data[1:]:
            try:
                found = json.loads(data[1:])
            except ValueError:
                found = {"message": data[1:].decode(errors="replace")}
            return printed.decode(errors="replace"), found


def _tls(configuration: Any) -> dict[str, Any]:
    """Return what the kubeconfig, or the ServiceAccount, says about TLS."""
    if not configuration.verify_ssl:
        return {"cert_reqs": ssl.CERT_NONE, "check_hostname": False}
    given = {
        "ca_certs": configuration.ssl_ca_cert,
        "certfile": configuration.cert_file,
        "keyfile": configuration.key_file,
        "server_hostname": configuration.tls_server_name,
    }
    return {"cert_reqs": ssl.CERT_REQUIRED, **{key: value for key, value in given.items() if value}}


def _short(told: object) -> str:
    return " ".join(str(told).split())[-300:].rstrip(".") or type(told).__name__

"""Answers as Prometheus' HTTP API does, and lies when told to: python THIS ORDERS [PORT].

The file ORDERS says what to answer, and is read anew for each request: `truth N` is a load of N,
fresh and by itself; `absurd` goes through all answers that are no number to go by, a few seconds
each. It runs in a pod and imports nothing of ours.
"""

import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

PORT = 9090
TURN_S = 3.0
"""How long each absurd answer lasts: an autoscaler that asks each second hears it at least once."""
ABSURD = (
    "nan",
    "negative",
    "infinite",
    "stale",
    "nothing",
    "two series",
    "warning",
    "error",
    "page",
    "torn",
)
LIE = "1"
"""The number that a wrong answer gives where it gives one: it would take nodes away."""
PART = re.compile(r'label_replace\(\(\n(.*?)\n\), "elasticd_part", "(\d+)", "", ""\)', re.DOTALL)
AGE = "time() - min("


def respond(expression: str, order: str, now_s: float) -> tuple[int, bytes]:
    """Return status and body for one query."""
    verb, _, number = order.partition(" ")
    how = ABSURD[int(now_s / TURN_S) % len(ABSURD)] if verb == "absurd" else ""
    if how == "error":
        return 503, b'{"status":"error","errorType":"unavailable","error":"a store is away"}'
    if how == "page":
        return 200, b"<html><body>Please log in</body></html>"
    if expression == "time()":
        data: dict[str, object] = {"resultType": "scalar", "result": [now_s, str(now_s)]}
        return 200, json.dumps({"status": "success", "data": data}).encode()
    parts = PART.findall(expression) or [(expression, "")]
    result = [
        {"metric": {"n": str(at), **({"elasticd_part": part} if part else {})}, "value": [now_s, v]}
        for text, part in parts
        for at, v in enumerate(_ages(how) if text.startswith(AGE) else _values(how, number))
    ]
    answer: dict[str, object] = {
        "status": "success",
        "data": {"resultType": "vector", "result": result},
    }
    if how == "warning":
        answer["warnings"] = ["a store is away"]
    body = json.dumps(answer).encode()
    return 200, body[: len(body) // 2] if how == "torn" else body


def _values(how: str, number: str) -> list[str]:
    wrong = {"nan": ["NaN"], "negative": ["-3"], "infinite": ["+Inf"], "nothing": []}
    return wrong.get(how, [LIE, LIE] if how == "two series" else [LIE if how else number])


def _ages(how: str) -> list[str]:
    return {"stale": ["3600"], "nothing": []}.get(how, ["1"])


def serve(path: Path, port: int) -> None:
    """Answer until the process ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(404, b"404 page not found")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            expression = parse_qs(body)["query"][0]
            if self.path.endswith("query_range"):
                data = {"resultType": "matrix", "result": []}
                self._send(200, json.dumps({"status": "success", "data": data}).encode())
                return
            self._send(*respond(expression, path.read_text().strip(), time.time()))

        def _send(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    ThreadingHTTPServer(("", port), Handler).serve_forever()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else PORT)

"""A process that has imported torch and does a floor's work at a word: a line in, a line out."""

import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from elasticd.store.private_etcd.embedded import bound_to_us
from tests.benchmarks.bench import ROOT, own_environ

__all__ = ["WarmParent"]


class WarmParent:
    """`module` prints a line when it is warm, and one for each line that it reads."""

    def __init__(self, module: str, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            bound_to_us([sys.executable, "-m", module]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=own_environ(dict(env)) | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            cwd=ROOT,
            text=True,
            start_new_session=True,
        )
        self._hear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait(5.0)

    def ask(self, line: str) -> str:
        """Give an order and return the answer to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._hear()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("The warm parent of the floor ended; its error is above.")
        return line.strip()

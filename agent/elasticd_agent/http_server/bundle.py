"""The node's answers to `elasticd bundle`: files of a job, this agent's own log, and versions.

`/v1/bundle/jobs/<job>` answers with a list of the job's files on this node, as JSON;
`/v1/bundle/jobs/<job>/<file>` with the end of one of them; `/v1/bundle/agent.log` with the newest
lines of this agent's log; `/v1/bundle/versions` with what is installed here. What files those are
is a closed list (`elasticd.bundle.job_files`), and nothing leaves the node before its own secrets
are masked. Imported with the first such question.
"""

import json
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs

from elasticd.bundle.job_files import RECORD_BYTES, JobFiles, last_part
from elasticd.bundle.mask import Mask, MaskedValue
from elasticd.bundle.secret import secrets_of_environ
from elasticd.bundle.versions import versions
from elasticd.errors import CallError
from elasticd.records.codec import to_plain
from elasticd.records.ids import JobName, checked_name
from elasticd_agent.http_server.answer import HttpAnswer, text_answer

__all__ = ["PREFIX", "BundleFiles"]

PREFIX = "/v1/bundle/"
_NUMBER = re.compile(r"[0-9]{1,9}")


class BundleFiles:
    """The HTTP route by which a bundle gets the files of this node.

    `folders` holds the run folders of jobs that asked for one of their own.
    """

    def __init__(
        self,
        run_folder: Path,
        folders: Mapping[JobName, Path],
        *,
        log_lines: Callable[[], list[str]],
        password: str = "",
        environ: Mapping[str, str],
    ) -> None:
        """`log_lines` gives this agent's own log; `password` is etcd's. It is masked, and so are
        the secrets in `environ`, the agent's own environment.
        """
        self._run_folder, self._folders = run_folder, folders
        self._log_lines = log_lines
        found = secrets_of_environ(environ)
        own = [MaskedValue(name="etcd-password", value=password)] if password else []
        self._mask = Mask([*own, *found])

    def __call__(self, path: str, query: str) -> HttpAnswer | None:
        if not path.startswith(PREFIX):
            return None
        try:
            match path.removeprefix(PREFIX).split("/"):
                case ["agent.log"]:
                    return HttpAnswer(body=self._own_log())
                case ["versions"]:
                    return HttpAnswer(body=json.dumps(versions(), indent=1).encode())
                case ["jobs", job]:
                    files = self._files_of(job).list()
                    return HttpAnswer(body=json.dumps(to_plain(files)).encode())
                case ["jobs", job, *name]:
                    most = parse_qs(query).get("bytes", ["0"])[0]
                    limit = int(most) if _NUMBER.fullmatch(most) else 0
                    return HttpAnswer(
                        body=self._files_of(job).end("/".join(name), self._mask, limit)
                    )
        except (CallError, OSError):
            pass
        return text_answer(HTTPStatus.NOT_FOUND, "There is no such file for a bundle.")

    def _files_of(self, job: str) -> JobFiles:
        """Return the files of a job.

        Raises: CallError: this is no valid name of a job.
        """
        name = JobName(checked_name("job", job))
        return JobFiles(self._folders.get(name, self._run_folder) / name)

    def _own_log(self) -> bytes:
        lines = self._mask.text("\n".join(self._log_lines()) + "\n")
        return last_part(lines.encode("utf-8", "backslashreplace"), RECORD_BYTES, is_whole=True)

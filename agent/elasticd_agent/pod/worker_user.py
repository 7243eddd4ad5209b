"""The user of `--worker-user`, as whom an agent starts all processes of its jobs.

Workers, pools, the fork server, keepers and event writers run as this user: the spec of a job names
what each of them loads, reads and writes, so none may have rights that the job's script has not.
"""

import os
import pwd
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import elasticd
import elasticd_agent
from elasticd.channel.fork_server import SERVER_VARIABLE
from elasticd.control.local_run.run_folder import make_private
from elasticd.errors import CallError
from elasticd_agent.pool.process.effective_user import become_effective

__all__ = ["WorkerUser", "find_worker_user"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUser:
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    """All groups that this machine gives the user, the first one too."""
    home: str

    def environ_of(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the agent's environment with what a login of this user would set."""
        kept = {name: text for name, text in environ.items() if name != SERVER_VARIABLE}
        return {**kept, "HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def give_folder(self, path: Path) -> Path:
        """Create a folder for this user alone; a folder that exists stays as it is.

        Raises: CallError: the folder cannot be created.
        """
        try:
            if not path.exists():
                make_private(path)
                os.chown(path, self.uid, self.gid, follow_symlinks=False)
        except OSError as exc:
            raise CallError(
                f"The folder {path} cannot be made for the user {self.name} ({exc.strerror}): make "
                "it yourself and give it to that user."
            ) from exc
        return path

    def begin(self, folders: Mapping[str, Path]) -> None:
        """Have this process act as this user, who needs access to `folders` (by their flags) and to
        the workers' start files.

        Raises: CallError: the process may not, or the user lacks a right; the message says which.
        """
        try:
            become_effective(self.uid, self.gid, self.groups)
        except OSError as exc:
            raise CallError(
                f"--worker-user {self.name} needs an agent that may change its user "
                f"({exc.strerror}): start it as root, or give it CAP_SETUID and CAP_SETGID."
            ) from exc
        for flag, path in folders.items():
            if not os.access(path, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
                raise CallError(
                    f"The user {self.name} of --worker-user cannot write to {path}: give the "
                    f"folder and what is in it to that user (chown -R {self.name}), let that user "
                    f"through the folders above it, or choose another {flag}."
                )
        needed = [sys.executable, *(str(each.__file__) for each in (elasticd, elasticd_agent))]
        for program in needed:
            if not os.access(program, os.R_OK, effective_ids=True):
                raise CallError(
                    f"The user {self.name} of --worker-user cannot read {program}, with which its "
                    "workers start: install elasticd where that user may read it."
                )


def find_worker_user(text: str) -> WorkerUser:
    """Find a user of this machine by name or number.

    Raises: CallError: there is no such user, or no worker may run as this user.
    """
    try:
        is_number = text.isascii() and text.isdecimal()
        entry = pwd.getpwuid(int(text)) if is_number else pwd.getpwnam(text)
    except (KeyError, OverflowError, ValueError) as exc:
        raise CallError(
            f"--worker-user {text} is no user of this machine: give one that `getent passwd` shows."
        ) from exc
    if entry.pw_uid == 0:
        raise CallError(
            f"--worker-user {text} is root, whose rights no job is to have: give another user, for "
            "example one made by `useradd --system --create-home training`."
        )
    if entry.pw_uid == os.geteuid():
        raise CallError(
            f"--worker-user {text} is the user of the agent itself: start the agent as another "
            "one, or leave the flag out."
        )
    return WorkerUser(
        name=entry.pw_name,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)),
        home=entry.pw_dir,
    )

"""The files to which this process prints: each generation's output goes into its own.

So `elasticd logs` finds the output of a rank of a generation in one place, whether the process is
new in that generation or was in the one before.
"""

import os
import sys

__all__ = ["redirect"]


def redirect(out_path: str, err_path: str) -> None:
    """Point stdout and stderr at these files from now on; an empty path leaves the stream as it is.

    A file that cannot be opened (a full disk) must not end the training, so the old one stays.
    """
    for path, stream, fd in ((out_path, sys.stdout, 1), (err_path, sys.stderr, 2)):
        if not path:
            continue
        try:
            stream.flush()
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file_fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except (OSError, ValueError):
            continue
        os.dup2(file_fd, fd)
        os.close(file_fd)

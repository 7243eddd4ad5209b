"""The present local runs: a view opens its sources anew when they change."""

import os
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from elasticd.cli.etcd_flags import log_dir_of, settings_from
from elasticd.control.local_run.run_folder import local_jobs

__all__ = ["which_runs"]


def which_runs(values: dict[str, Any]) -> Hashable:
    """Return the local runs, each with its etcd's address if it runs; a cluster gives a constant.

    A run that ends removes its address after its records are kept and before its etcd ends.
    """
    if settings_from(values, os.environ) is not None:
        return ()
    folder = Path(log_dir_of(values, os.environ) or "elasticd-runs").absolute()
    return tuple(
        (found.job, found.endpoint if found.is_live() else "over") for found in local_jobs(folder)
    )

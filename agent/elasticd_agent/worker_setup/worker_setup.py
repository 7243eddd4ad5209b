"""Prepares the start of one job's workers on this node: a folder, files, environment, order.

The spec of the job names variables whose values stand in files of this node. They are read when the
folder is prepared, so that the values are known to the workers alone and never stand in etcd.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from elasticd.channel.pool import Start
from elasticd.records.ids import Generation, NodeId, Rank, Slot
from elasticd.records.job import JobSpec
from elasticd.records.world import Placement, World
from elasticd_agent.worker_setup.entry_access import check_access
from elasticd_agent.worker_setup.gpus import visible_gpus
from elasticd_agent.worker_setup.job_files import folder_of, read_variables, write_files
from elasticd_agent.worker_setup.log_folder import claim
from elasticd_agent.worker_setup.worker_env import (
    WorkerFiles,
    interface_of,
    prepared_env,
    prepared_files,
    start_order,
    worker_env,
    worker_files,
)

__all__ = ["WorkerSetup"]


class WorkerSetup:
    """Prepares the folder of a job, and says with what each of its workers is started."""

    def __init__(
        self,
        spec: JobSpec,
        node: NodeId,
        run_folder: Path,
        *,
        address: str,
        environ: Mapping[str, str],
    ) -> None:
        """Write nothing yet. `environ` is the environment of the agent, read at each start, and
        `address` the node's own, by which peers reach it.
        """
        self._spec, self._node, self._run_folder = spec, node, run_folder
        self._environ = environ
        self._files = folder_of(run_folder, spec.name)
        self.cwd = str(self._files.absolute()) if spec.files else spec.cwd or os.getcwd()
        """The folder in which the workers start."""
        self._given = spec
        """The spec with the variables that are read on this node; only the workers see those."""
        self._interface = interface_of(address)
        self._gpus = visible_gpus(environ)

    def prepare_folder(self) -> None:
        """Make the job's folder ready, which may wait for a disk; another thread may call this.

        Raises:
            OSError: the folder cannot be written, a file of a variable cannot be read, or workers
                may not read what they are started from.
            ValueError: a file's name leads out of the folder, or its content can be no variable.
        """
        claim(self._run_folder / self._spec.name, self._spec.uid)
        if self._spec.files:
            write_files(self._files, self._spec.files)
        variables = read_variables(self._spec.env_files)
        self._given = replace(self._spec, env={**self._spec.env, **variables})
        check_access(self._spec, self.cwd, {**self._environ, **self._given.env})

    def files_of(self, generation: Generation, rank: Rank) -> WorkerFiles:
        """Return where a rank of a generation writes."""
        return worker_files(self._run_folder, self._spec.name, generation, rank)

    def prepared_files(self, name: str) -> WorkerFiles:
        """Return where a worker without a rank writes; no other process has the same `name`."""
        return prepared_files(self._run_folder, self._spec.name, name)

    def env_of(self, world: World, placement: Placement, files: WorkerFiles) -> dict[str, str]:
        """Return the environment of a worker that is started for a world."""
        return worker_env(
            self._given,
            world,
            placement,
            files,
            base=self._environ,
            interface=self._interface,
            gpus=self._gpus,
        )

    def prepared_env(self, slot: Slot) -> dict[str, str]:
        """Return the environment of a worker that waits in `elasticd.run` for its first world."""
        return prepared_env(
            self._given,
            self._node,
            slot,
            self._run_folder,
            base=self._environ,
            interface=self._interface,
            gpus=self._gpus,
        )

    def order(self, name: str, files: WorkerFiles, env: dict[str, str], *, niceness: int) -> Start:
        """Return the order by which the pool starts a worker."""
        return start_order(name, self._spec, files, env, cwd=self.cwd, niceness=niceness)

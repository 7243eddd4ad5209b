"""The processes beside a job's workers on a node: the keeper of checkpoints, the event writer."""

from collections.abc import Mapping
from pathlib import Path

from elasticd.records.ids import NodeId
from elasticd.records.job import JobSpec
from elasticd_agent.pod.orphans import Children
from elasticd_agent.side_processes.keeper_process import KeeperProcess
from elasticd_agent.side_processes.writer_process import WriterProcess

__all__ = ["SideProcesses"]


class SideProcesses:
    """Hold the side processes that a job wants; each outlives its workers, and none is a child of
    the pool.
    """

    def __init__(
        self,
        spec: JobSpec,
        node: NodeId,
        run_folder: Path,
        children: Children,
        *,
        environ: Mapping[str, str],
        address: str = "",
    ) -> None:
        """Start nothing yet; their logs go to the job's folder in `run_folder`.

        `environ` is the environment of the agent.
        """
        folder = run_folder / spec.name
        self._keeper = KeeperProcess(spec, node, folder, children, environ=environ, address=address)
        self._writer = WriterProcess(spec, node, folder, children, environ=environ)

    @property
    def env(self) -> Mapping[str, str]:
        """Return the variables by which workers find them."""
        return {**self._keeper.env, **self._writer.env}

    @property
    def metrics_path(self) -> Path | None:
        """Return where the keeper writes its metrics; None if the job saves nothing."""
        return self._keeper.metrics_path

    def open(self) -> None:
        """Start the processes that are not started; wait for the disk on which their logs stand.

        Raises:
            OSError: the system gives no process.
        """
        self._keeper.open()
        self._writer.open()

    def close(self) -> None:
        """Let them finish what is under way, and wait for nothing."""
        self._keeper.close()
        self._writer.close()

"""Has it written down where a hung worker stands, before that worker is killed."""

from collections.abc import Callable, Iterable
from pathlib import Path

from elasticd.records.ids import JobName, NodeId
from elasticd_agent.lookout import Lookout
from elasticd_agent.process import Process, standing_with
from elasticd_agent.stacks import stacks_path

__all__ = ["Examiner"]


class Examiner:
    """Of one job's workers on this node; all methods run on the owner's thread."""

    def __init__(
        self,
        lookout: Lookout,
        post: Callable[[Callable[[], None]], None],
        run_folder: Path,
        job: JobName,
        node: NodeId,
    ) -> None:
        self._lookout, self._post = lookout, post
        self._run_folder, self._job, self._node = run_folder, job, node

    def examine(
        self,
        suspect: Process,
        processes: Iterable[Process],
        why: str,
        *,
        is_frozen: bool,
        stop: Callable[[], None],
    ) -> Path:
        """Begin, and return where the stacks will stand.

        A stop of the suspect that falls due meanwhile (`is_stop_due`) is carried out afterwards.
        """
        suspect.is_examined = True

        def examined() -> None:
            suspect.is_examined = False
            if suspect.is_stop_due:
                stop()

        path = stacks_path(self._run_folder, self._job, suspect.generation, self._node)
        standing = standing_with(suspect, processes, why, is_frozen=is_frozen)
        self._lookout.write_stacks(path, standing, lambda: self._post(examined))
        return path

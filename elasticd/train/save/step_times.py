"""How much longer a step is during the copy of a snapshot than the steps before."""

from elasticd.train.save.overlapped_copy import CopyChoice

__all__ = ["StepTimes"]

NEWEST = 0.2
"""The weight of the newest step in the average of those without a copy."""


class StepTimes:
    """The steps of one generation."""

    def __init__(self) -> None:
        self.stepped_s = 0.0
        """When the newest step ended; 0.0 before the first."""
        self.is_costly = False
        """A snapshot is copied beside the step that began last."""
        self._usual_s: float | None = None

    def stepped(self, choice: CopyChoice, now_s: float) -> None:
        """Take note that a step ends now, and of what the copy beside it cost."""
        before_s, self.stepped_s = self.stepped_s, now_s
        step_s = self.stepped_s - before_s
        if not before_s or not step_s:
            return
        if self.is_costly:
            if self._usual_s is not None:
                choice.took(is_overlapped=True, stall_s=step_s - self._usual_s)
            self.is_costly = False
        elif self._usual_s is None:
            self._usual_s = step_s
        else:
            self._usual_s += NEWEST * (step_s - self._usual_s)

"""The settings that the agent gives to a worker through its environment."""

from collections.abc import Mapping
from dataclasses import dataclass

from elasticd.errors import EnvironmentProblem
from elasticd.records.checkpoint import Every, read_bandwidth, read_every

__all__ = ["WorkerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    agent: str
    """Name of the agent's abstract socket (ELASTICD_AGENT); empty without an agent."""
    job: str
    on_nan: str
    """What a gradient that is not finite does: stop, skip or ignore (ELASTICD_ON_NAN)."""
    compare_every: int | None
    """Compare the replicas at each commit whose number this divides (ELASTICD_COMPARE_EVERY); 0:
    never. None: after the first commits, and then ever more seldom."""
    keeper: str
    """Name of the socket of the process that keeps checkpoints (ELASTICD_KEEPER); empty: none."""
    every: Every
    """How often to save (ELASTICD_CHECKPOINT_EVERY)."""
    upload_every: Every | None
    """How often one of the snapshots of each step is uploaded (ELASTICD_CHECKPOINT_UPLOAD_EVERY);
    None: every snapshot is."""
    mirror_bytes_per_s: int
    """How many bytes of snapshots this node sends to the next one in a second at most
    (ELASTICD_MIRROR_BANDWIDTH); 0: any."""
    copy: str
    """auto, blocking or overlapped (ELASTICD_CHECKPOINT_COPY)."""
    tensorboard: str
    """Name of the socket of the writer of event files (ELASTICD_EVENT_WRITER); empty: none."""
    is_torchrun: bool
    """Another launcher has given this process a rank."""

    @classmethod
    def read(cls, env: Mapping[str, str]) -> "WorkerSettings":
        """Take the settings from an environment.

        Raises:
            EnvironmentProblem: a value that is none of those allowed.
        """
        if env.get("ELASTICD_AGENT") and env.get("TORCHELASTIC_USE_AGENT_STORE") == "False":
            raise EnvironmentProblem(
                "elasticd.run was called in a program that was started with --no-python, for which "
                "nothing of torch is kept ready: call `elasticd run SCRIPT` without it, and name "
                "another interpreter with --python."
            )
        on_nan = env.get("ELASTICD_ON_NAN") or "ignore"
        if on_nan not in ("stop", "skip", "ignore"):
            raise EnvironmentProblem(
                f"ELASTICD_ON_NAN is {on_nan!r}: set it to stop, skip or ignore, or unset it."
            )
        every = env.get("ELASTICD_COMPARE_EVERY") or "0"
        is_seldom = not env.get("ELASTICD_COMPARE_EVERY")
        if not every.isascii() or not every.isdigit():
            raise EnvironmentProblem(
                f"ELASTICD_COMPARE_EVERY is {every!r}: set it to a number of commits, 0 for never."
            )
        return cls(
            agent=env.get("ELASTICD_AGENT", ""),
            job=env.get("ELASTICD_JOB", ""),
            on_nan=on_nan,
            compare_every=None if is_seldom else int(every),
            keeper=env.get("ELASTICD_KEEPER", ""),
            every=read_every("ELASTICD_CHECKPOINT_EVERY", env.get("ELASTICD_CHECKPOINT_EVERY")),
            upload_every=_upload_every(env.get("ELASTICD_CHECKPOINT_UPLOAD_EVERY")),
            mirror_bytes_per_s=read_bandwidth(
                "ELASTICD_MIRROR_BANDWIDTH", env.get("ELASTICD_MIRROR_BANDWIDTH") or None
            ),
            copy=env.get("ELASTICD_CHECKPOINT_COPY") or "auto",
            tensorboard=env.get("ELASTICD_EVENT_WRITER", ""),
            is_torchrun="TORCHELASTIC_RUN_ID" in env or "RANK" in env,
        )


def _upload_every(text: str | None) -> Every | None:
    return read_every("ELASTICD_CHECKPOINT_UPLOAD_EVERY", text) if text else None

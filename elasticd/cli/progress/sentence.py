"""A run's progress in words, the most wanted first, so that a narrow terminal shows those. Pure."""

from collections.abc import Sequence
from unicodedata import combining, east_asian_width

from elasticd.cli.progress.pace import Speed
from elasticd.cli.terminal import words
from elasticd.records.account.progress import RankProgress
from elasticd.records.world import World

__all__ = ["fitted", "progress_parts"]

SCALARS_SHOWN = 2
BETWEEN = " | "


def progress_parts(
    world: World, rank: RankProgress | None, speed: Speed, goodput: float | None = None
) -> list[str]:
    """Return where the training stands; `rank` is what its lowest rank reported, None if nobody
    answers.

    `goodput`: the share of all slots' time that trained so far; None if not known.
    """
    size = f"{words.counted(len(world.nodes), 'node')}, {words.counted(world.size, 'worker')}"
    if rank is None:
        return ["no word of the ranks yet", size]
    if rank.generation < world.generation:
        return [f"generation {world.generation} begins", size]
    if rank.step is None:
        ago = rank.output_ago_s
        wrote = "no output yet" if ago is None else f"last output {words.duration(ago)} ago"
        return [wrote, size, *_checkpoint(rank)]
    parts = [f"step {rank.step}"]
    if rank.why_paused:
        parts.append(f"paused: {rank.why_paused}")
    if rank.epoch or rank.epochs:
        of = f"/{rank.epochs}" if rank.epochs else ""
        # The first epoch is number 0 for the script, and the first of so many for a person.
        parts.append(f"epoch {min(rank.epoch + 1, rank.epochs or rank.epoch + 1)}{of}")
    if speed.samples_s is not None:
        parts.append(f"{_rate(speed.samples_s)} samples/s")
    elif speed.steps_s is not None:
        parts.append(f"{_rate(speed.steps_s)} steps/s")
    if speed.rest_s is not None:
        parts.append(f"ends in {words.duration(speed.rest_s)}")
    shown = list(rank.scalars.items())[:SCALARS_SHOWN]
    parts += [f"{name} {value:.4g}" for name, value in shown]
    parts.append(size)
    if goodput is not None:
        parts.append(f"goodput {goodput:.0%}".replace("%", " %"))
    parts += _checkpoint(rank)
    if rank.committed_ago_s is not None:
        what = "told" if rank.is_told else "commit"
        parts.append(f"{what} {words.seconds(rank.committed_ago_s)} ago")
    return parts


def fitted(parts: Sequence[str], width: int) -> str:
    """Join as many parts as fit into the width; at least the first, which is cut if needed.

    The result is one line of at most so many columns, whatever names a script uses: a line that
    wraps could not be erased.
    """
    text = ""
    for part in parts:
        plain = "".join(each if each.isprintable() else " " for each in part)
        longer = text + BETWEEN + plain if text else plain
        if text and _columns(longer) > width:
            break
        text = longer
    while text and _columns(text) > width:
        text = text[:-1]
    return text


def _columns(text: str) -> int:
    """Return the columns that a terminal needs: two for a Chinese character, none for an accent."""
    return sum(
        2 if east_asian_width(each) in "WF" else 0 if combining(each) else 1 for each in text
    )


def _checkpoint(rank: RankProgress) -> list[str]:
    if rank.checkpoint_ago_s is None:
        return []
    return [f"checkpoint {words.duration(rank.checkpoint_ago_s)} ago"]


def _rate(value: float) -> str:
    """Return three digits, without the exponent that the g format gives a large number."""
    return f"{value:.3g}" if value < 1_000 else f"{value:,.0f}".replace(",", " ")

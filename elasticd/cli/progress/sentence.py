"""A run's progress in words, the most important first. Pure; `part` selects the words that fit."""

from collections.abc import Iterator, Sequence

from elasticd.cli.progress.part import LinePart, PartName
from elasticd.cli.progress.speed import Speed
from elasticd.cli.terminal import words
from elasticd.records.account.progress import RankProgress
from elasticd.records.world import World

__all__ = ["progress_parts"]

SCALARS_SHOWN = 2


def progress_parts(
    world: World, rank: RankProgress | None, speed: Speed, goodput: float | None = None
) -> list[LinePart]:
    """Return the parts of the progress line.

    `rank` is the report of the lowest rank, None if no agent answers. `goodput` is the share of all
    slots' time that trained so far, None if it is not known.
    """
    if rank is None:
        return [_standing("no word of the ranks yet"), _size(world)]
    if rank.generation < world.generation:
        return [_standing(f"generation {world.generation} begins"), _size(world)]
    if rank.step is None:
        ago = rank.output_ago_s
        wrote = "no output yet" if ago is None else f"last output {words.duration(ago)} ago"
        return [_standing(wrote), _size(world), *_checkpoint(rank)]
    step = f"step {rank.step}"
    of_all = (words.step_of(rank),) if rank.steps else ()
    parts = [LinePart(PartName.STANDING, (*of_all, step))]
    if rank.why_paused:
        parts.append(LinePart(PartName.PAUSE, (f"paused: {rank.why_paused}",)))
    if epoch := words.epoch_of(rank):
        parts.append(LinePart(PartName.EPOCH, (epoch,)))
    parts += _pace(speed)
    shown = [f"{name} {value:.4g}" for name, value in rank.scalars.items()][:SCALARS_SHOWN]
    names = (PartName.SCALAR, PartName.MORE)
    parts += [LinePart(name, (text,)) for name, text in zip(names, shown, strict=False)]
    parts.append(_size(world))
    if goodput is not None:
        share = f"{goodput:.0%}"
        long = f"goodput {share}".replace("%", " %")
        parts.append(LinePart(PartName.GOODPUT, (long, f"goodput {share}")))
    parts += _checkpoint(rank)
    if rank.committed_ago_s is not None:
        what = "told" if rank.is_told else "commit"
        parts.append(
            LinePart(PartName.COMMIT, (f"{what} {words.seconds(rank.committed_ago_s)} ago",))
        )
    return parts


def _standing(text: str) -> LinePart:
    return LinePart(PartName.STANDING, (text,))


def _size(world: World) -> LinePart:
    workers = words.counted(world.size, "worker")
    long = f"{words.counted(len(world.nodes), 'node')}, {workers}"
    return LinePart(PartName.SIZE, (long, workers, f"world {world.size}"))


def _pace(speed: Speed) -> Iterator[LinePart]:
    """Yield the rates and the estimated end of the training, as far as they are known."""
    if speed.samples_s is not None:
        short = _short_rate(speed.samples_s)
        forms = (f"{_rate(speed.samples_s)} samples/s", f"{short} samples/s", f"{short}/s")
        yield LinePart(PartName.RATE, forms)
    elif speed.steps_s is not None:
        # Without "steps" a reader would take the rate for samples.
        yield LinePart(PartName.RATE, (f"{_rate(speed.steps_s)} steps/s",) * 3)
    if speed.rest_s is not None:
        long = words.duration(speed.rest_s)
        units = _units(long)
        forms = (f"ends in {long}", f"{''.join(units)} left", f"{units[0]} left")
        yield LinePart(PartName.END, forms)


def _checkpoint(rank: RankProgress) -> Sequence[LinePart]:
    if rank.checkpoint_ago_s is None:
        return []
    long = words.duration(rank.checkpoint_ago_s)
    short = _units(long)[0]
    return [
        LinePart(
            PartName.CHECKPOINT, (f"checkpoint {long} ago", f"ckpt {short} ago", f"ckpt {short}")
        )
    ]


def _units(duration: str) -> list[str]:
    """Return "3 h 20 min" as "3h" and "20m"."""
    found = duration.split()
    return [f"{number}{unit[0]}" for number, unit in zip(found[::2], found[1::2], strict=True)]


def _rate(value: float) -> str:
    """Return a number with three digits, without the exponent of the g format."""
    return f"{value:.3g}" if value < 1_000 else f"{value:,.0f}".replace(",", " ")


def _short_rate(value: float) -> str:
    """Return a number of any size with three digits, as in "12.3k"."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.{_decimals(value / unit)}f}{name}"
    return f"{value:.3g}"


def _decimals(value: float) -> int:
    return 2 if value < 9.995 else 1 if value < 99.95 else 0

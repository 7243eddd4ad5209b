"""`elasticd checkpoint export`: writes a checkpoint for readers who do not have elasticd."""

from pathlib import Path
from typing import Any

import click

from elasticd.checkpoint.commit.read_lease import reading
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.cli.checkpoints import words
from elasticd.cli.checkpoints.bucket import open_site, site_options
from elasticd.cli.parse_value import at_least
from elasticd.errors import CallError

__all__ = ["export"]

FORMATS = ("dcp", "torch", "safetensors")


@click.command()
@site_options
@click.argument("number", type=at_least(1), required=False)
@click.option("--step", type=at_least(0), help="Take the checkpoint of this step.")
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What reads it.")
@click.option(
    "--to", "target", metavar="FOLDER", required=True, help="Folder to write to, new or empty."
)
def export(number: int | None, step: int | None, form: str, target: str, **given: Any) -> int:
    """Write the checkpoint NUMBER, or the newest, to a folder that needs no elasticd to load.

    dcp: for torch.distributed.checkpoint.load. torch: one file for torch.load. safetensors: the
    tensors by name, and the plain values as JSON.
    """
    if not target:
        raise CallError("--to names no folder: give one that is new or empty.")
    if "://" in target:
        raise CallError(f"--to {target}: an export goes to a folder of this machine.")
    if number is not None and step is not None:
        raise CallError("NUMBER and --step are two names of one thing: give one of them.")
    try:
        folder = Path(target).resolve()
    except RuntimeError as exc:  # Python 3.12 and older.
        raise CallError(f"--to {target} is a link to itself: give another folder.") from exc
    site = open_site(given)
    entry = site.pick(number, step)
    from elasticd.dcp import export as writer  # This imports torch, which is slow.

    writer.check_target(folder)
    try:
        with reading(site.bucket, entry.number):
            writer.export(site.bucket, entry, form, folder)
    except Damaged as exc:
        before = next((each for each in site.checkpoints() if each.number < entry.number), None)
        if before is None:
            raise
        sentence = str(exc).rstrip(".")
        raise Damaged(
            f"{sentence}. The one before is {words.named(before)}: export it by its number."
        ) from exc
    click.echo(f"wrote {words.named(entry)} to {folder}; to load it:")
    click.echo(f"  {writer.FORMATS[form].hint(folder)}")
    return 0

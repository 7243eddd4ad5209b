"""`elasticd run --bundle`: the bundle of a job that failed; it does not change how the job ends."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from elasticd.bundle.destination import Destination
from elasticd.cli.bundle.command import bundle_lines, bundle_plain, make
from elasticd.cli.progress.screen import Screen
from elasticd.cli.record_source import RecordSource
from elasticd.errors import ElasticdError
from elasticd.records.job import JobSpec

__all__ = ["bundle_failed", "options_of"]


def bundle_failed(
    opened: Callable[[], AbstractContextManager[RecordSource]],
    spec: JobSpec,
    place: Destination,
    screen: Screen,
    environ: Mapping[str, str],
    *,
    host: str = "",
) -> None:
    """Make the bundle and print its place, or print in one sentence why there is none.

    The function raises nothing. `opened` opens the records of the job. `host` becomes a part of the
    file's name if other hosts make a bundle at the same time.
    """
    options, why = options_of(spec, place), ""
    try:
        with opened() as source:
            done, packed = make(source, spec.name, place, options, environ, host=host)
    except ElasticdError as exc:
        why = str(exc)
    except OSError as exc:
        why = f"The system refused a call ({exc.strerror or exc})."
    except KeyboardInterrupt:
        why = "It was given up."
    except Exception as exc:  # The job's end was printed: our bug must not hide it.
        why = f"This is a bug of elasticd ({type(exc).__name__})."
    if why:
        again = f"`elasticd bundle {spec.name} --to URL` makes one"
        screen.bundled([f"no bundle was made: {why} {again}"], {"why": why})
    else:
        screen.bundled(bundle_lines(done, packed), bundle_plain(done, packed))


def options_of(spec: JobSpec, place: Destination) -> Mapping[str, Any]:
    """Return the options of the job's storage if the bundle goes to the same kind of storage, else
    an empty mapping.
    """
    kept = spec.checkpoint
    is_same = kept is not None and _scheme(kept.url) == _scheme(place.folder)
    return kept.options if kept is not None and is_same else {}


def _scheme(url: str) -> str:
    return url.partition("://")[0]

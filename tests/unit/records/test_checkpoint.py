"""What a job says of its checkpoints: how often, where, and how that is written down."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import CallError
from elasticd.records.checkpoint import (
    LEAST_BANDWIDTH,
    CheckpointSpec,
    Every,
    read_bandwidth,
    read_every,
    read_upload_every,
)
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec

FLAG = "--checkpoint-every"

SPEC = CheckpointSpec(
    url="s3://bucket/run",
    owner="train.py",
    options={"endpoint_url": "http://host:9000", "config_kwargs": {"max": [1, 2.5, None, True]}},
    every=Every(steps=100),
    upload_every=Every(seconds=30.0),
    mirror_bytes_per_s=200_000_000,
    keep_last=0,
    keep_every_steps=1000,
    copy="overlapped",
    parallel=3,
    timeout_s=7.5,
)


def job(checkpoint: CheckpointSpec | None) -> JobSpec:
    return JobSpec(
        name=JobName("j"), uid="1", entry_kind=EntryKind.SCRIPT, entry="x.py", checkpoint=checkpoint
    )


@pytest.mark.parametrize("spec", [None, SPEC, CheckpointSpec(url="file:///a", owner="o")], ids=str)
def test_job_with_checkpoints_survives_the_way_to_bytes_and_back(
    spec: CheckpointSpec | None,
) -> None:
    """With every field, with all defaults, and without."""
    assert decode(JobSpec, encode(job(spec))) == job(spec)


def test_record_of_before_there_were_checkpoints_has_none() -> None:
    """An agent that is newer than the submitter saves nothing that nobody asked for."""
    plain = json.loads(encode(job(SPEC)))
    del plain["checkpoint"]
    assert decode(JobSpec, json.dumps(plain).encode()) == job(None)


def test_field_of_a_newer_schema_does_not_make_a_job_unreadable() -> None:
    """What is not known is left out, what is missing is as it is by default."""
    plain = json.loads(encode(job(SPEC)))
    plain["checkpoint"] = {"url": "file:///a", "owner": "o", "colour": "of tomorrow"}
    found = decode(JobSpec, json.dumps(plain).encode()).checkpoint
    assert found == CheckpointSpec(url="file:///a", owner="o")
    assert found.every == Every(seconds=60.0)


@pytest.mark.parametrize(
    ("text", "every"),
    [
        (None, Every(seconds=60.0)),
        ("45", Every(seconds=45.0)),
        ("60s", Every(seconds=60.0)),
        ("0.5s", Every(seconds=0.5)),
        ("1.5m", Every(seconds=90.0)),
        ("5min", Every(seconds=300.0)),
        ("2 h", Every(seconds=7200.0)),
        (" 10s ", Every(seconds=10.0)),
        ("1e3s", Every(seconds=1000.0)),
        ("100steps", Every(steps=100)),
        ("100 steps", Every(steps=100)),
        ("1step", Every(steps=1)),
        ("1e3steps", Every(steps=1000)),
    ],
)
def test_times_and_numbers_of_steps_are_read(text: str | None, every: Every) -> None:
    """A number alone is seconds; nothing at all is a minute."""
    assert read_every(FLAG, text) == every


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "s", "steps", "often", "0", "0s", "0steps", "-1", "-5s", "-3steps", "0.5steps",
        "1.5steps", "5d", "5 s s", "5steps5", "nan", "NaN", "NaNs", "NaNsteps", "inf", "INF",
        "INFs", "INFsteps", "1e999", "1e999s", "1e999steps", "1e308h", "1e-400s", "5S", "1:00",
        "5m30s", "100 Steps", "五s", "9" * 400 + "s",
    ],
)  # fmt: skip
def test_what_is_neither_is_refused_in_one_sentence(text: str) -> None:
    """It names the flag, shows what was written, and what could be."""
    with pytest.raises(CallError) as caught:
        read_every(FLAG, text)
    said = str(caught.value)
    assert said.startswith(f"{FLAG} {text} ") and "100steps" in said and "60s" in said


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    """And what is read is one of the two, and finite."""
    try:
        every = read_every(FLAG, text)
    except CallError:
        return
    assert (every.steps > 0) != (0 < every.seconds < float("inf"))


@given(
    st.one_of(
        st.integers(1, 10**9).map(lambda steps: Every(steps=steps)),
        st.integers(1, 999_999).map(lambda tenths: Every(seconds=tenths / 10)),
    )
)
def test_what_is_shown_can_be_given_again(every: Every) -> None:
    """`elasticd status` shows what `--checkpoint-every` takes."""
    assert read_every(FLAG, str(every)) == every


@pytest.mark.parametrize(
    ("every", "text", "found"),
    [
        ("1steps", None, Every(seconds=60.0)),
        ("1steps", "5m", Every(seconds=300.0)),
        ("2steps", None, None),
        ("60s", None, None),
        (None, None, None),
    ],
)
def test_only_snapshots_of_each_step_are_uploaded_at_another_pace(
    every: str | None, text: str | None, found: Every | None
) -> None:
    """All others are uploaded, each of them."""
    assert read_upload_every(FLAG, text, read_every("--every", every)) == found


@pytest.mark.parametrize(
    ("every", "text"),
    [("2steps", "60s"), ("60s", "60s"), ("1steps", "9steps"), ("1steps", "soon")],
)
def test_pace_of_uploads_that_means_nothing_is_refused(every: str, text: str) -> None:
    """It names the flag and what was written."""
    with pytest.raises(CallError, match=f"^{FLAG} {text} "):
        read_upload_every(FLAG, text, read_every("--every", every))


def test_record_of_before_there_was_a_bandwidth_has_none() -> None:
    """And one that has it is read by a version that does not know it: it leaves it out."""
    plain = json.loads(encode(job(SPEC)))
    del plain["checkpoint"]["mirror_bytes_per_s"]
    found = decode(JobSpec, json.dumps(plain).encode()).checkpoint
    assert found is not None and found.mirror_bytes_per_s == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, 0),
        ("200MB/s", 200_000_000),
        ("1GiB/s", 1 << 30),
        ("1.5 GB/s", 1_500_000_000),
        (" 2TiB/s ", 2 << 40),
        ("1000KB/s", LEAST_BANDWIDTH),
        ("1000000B/s", LEAST_BANDWIDTH),
    ],
)
def test_bandwidth_is_bytes_in_a_second(text: str | None, found: int) -> None:
    """Of 1,000 or of 1,024 each, as the unit says; none is no bound."""
    assert read_bandwidth("--mirror-bandwidth", text) == found


@pytest.mark.parametrize(
    "text",
    [
        "", "fast", "0", "200", "200M", "200MB", "200M/s", "200Mb/s", "200mb/s", "1Gbit/s",
        "1iB/s", "-1MB/s", "0MB/s", "999KB/s", "1e3MB/s", "1.MB/s", "infMB/s", "nanGB/s",
        "9" * 400 + "GB/s", "1GiB/min", "1GiB/s/s",
    ],
)  # fmt: skip
def test_what_is_no_bandwidth_is_refused_in_one_sentence(text: str) -> None:
    """Bits are not guessed, and below the least a share would never arrive."""
    with pytest.raises(CallError) as caught:
        read_bandwidth("--mirror-bandwidth", text)
    said = str(caught.value)
    assert said.startswith(f"--mirror-bandwidth {text} ") and "MB/s" in said

"""Records to bytes and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import NotSupported
from elasticd.records.account.incident import Incident
from elasticd.records.codec import decode, encode, from_plain, to_plain
from elasticd.records.compression import RECORD_LIMIT_BYTES
from elasticd.records.ids import Generation, JobName, Nonce, Slot
from elasticd.records.job import Active, EndedJob, EntryKind, JobSpec, JobStatus, Want
from elasticd.records.member import Drain, Member, Node, Result, Stall, StallLimit
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World

RECORDS = (Active, EndedJob, Drain, Incident, JobSpec, JobStatus, Member, Node, Result, Want, World)
NAMES = st.text(min_size=1, max_size=5)


def records(kind: type) -> st.SearchStrategy[object]:
    """Any record of the kind, with its fields drawn from their types; kept ones of no interest."""
    return st.builds(kind, unknown=st.just({}))


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_every_record_survives_the_way_to_bytes_and_back(kind: type) -> None:
    """Also through the JSON of somebody else, who orders the keys otherwise."""

    @given(records(kind))
    def check(record: object) -> None:
        value = encode(record)
        assert decode(kind, value) == record
        turned = dict(reversed(list(json.loads(value).items())))
        assert decode(kind, json.dumps(turned).encode()) == record

    check()


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_unknown_fields_are_kept_and_written_back(kind: type) -> None:
    """A newer minor schema loses nothing in our hands."""

    @given(records(kind))
    def check(record: object) -> None:
        plain = json.loads(encode(record))
        plain["colour"] = {"of": ["tomorrow"]}
        again: object = decode(kind, json.dumps(plain).encode())
        assert getattr(again, "unknown") == {"colour": {"of": ["tomorrow"]}}  # noqa: B009
        assert json.loads(encode(again)) == plain

    check()


def changed(**fields: object) -> bytes:
    plain = json.loads(encode(Want(writer="user")))
    plain.update(fields)
    return json.dumps({k: v for k, v in plain.items() if v is not ...}).encode()


def test_newer_minor_schema_is_read() -> None:
    """It only adds fields."""
    assert decode(Want, changed(schema="1.7")) == Want(writer="user")


@pytest.mark.parametrize("schema", ["2.0", "0", "x", ""])
def test_other_major_schema_is_refused_with_what_to_do(schema: str) -> None:
    """It may mean something else by the same field."""
    with pytest.raises(NotSupported, match=r"schema .*: upgrade elasticd"):
        decode(Want, changed(schema=schema))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "not a JSON object"),
        (changed(kind="World"), "is a World, not a Want"),
        (changed(nodes="many"), "does not fit"),
        (changed(nodes=True), "does not fit"),
        (b"x" * (RECORD_LIMIT_BYTES + 1), "over the limit"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_record_is_refused_in_a_sentence(value: bytes, message: str) -> None:
    """Anybody who can write to etcd may have written it."""
    with pytest.raises(NotSupported, match=message):
        decode(Want, value)


@pytest.mark.parametrize(("field", "word"), [("reason", Reason.OTHER), ("phase", Phase.OTHER)])
def test_word_that_a_newer_version_added_hides_no_record(field: str, word: object) -> None:
    """An agent that is blind to a world would keep to the one before for good."""
    plain = json.loads(encode(JobStatus())) | {field: "of_tomorrow"}
    assert getattr(decode(JobStatus, json.dumps(plain).encode()), field) is word
    assert decode(World, _world().replace(b"first_world", b"of_tomorrow")).reason is Reason.OTHER
    for nonsense in (7, None, ["a"]):
        value = json.dumps(plain | {field: nonsense}).encode()
        with pytest.raises(NotSupported, match="does not fit"):
            decode(JobStatus, value)


def test_limit_of_a_newer_version_blames_nobody() -> None:
    """It counts as the shortest, which is only ever told of who waits."""
    stall = Stall(slot=Slot(0), nonce=Nonce(1), generation=Generation(1), step=1, sequence=1)
    told = json.loads(json.dumps(to_plain(stall)).replace("progress", "of_tomorrow"))
    assert from_plain(Stall, told).limit is StallLimit.OTHER
    assert not StallLimit.OTHER.is_beyond(StallLimit.STEP)


def test_word_without_which_nothing_can_be_done_is_refused() -> None:
    """What kind of program a job runs cannot be guessed."""
    spec = JobSpec(name=JobName("j"), uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py")
    value = encode(spec).replace(b'"script"', b'"container"')
    with pytest.raises(NotSupported, match="'container' is no EntryKind"):
        decode(JobSpec, value)


def test_missing_field_takes_its_default_and_without_one_is_refused() -> None:
    """An older writer did not know of it."""
    assert decode(Want, b'{"kind":"Want","schema":"1.0","writer":"user"}').nodes is None
    with pytest.raises(NotSupported, match="does not fit"):
        decode(Want, b'{"kind":"Want","schema":"1.0"}')


def test_tuple_of_different_kinds_is_read_by_position() -> None:
    """As in a journal's list of members."""
    kind = tuple[str, int, int]
    assert from_plain(kind, ["a", 1, 2]) == ("a", 1, 2)
    with pytest.raises(ValueError, match="zip"):
        from_plain(kind, ["a", 1])


def test_lookup_tables_of_a_world_are_not_written() -> None:
    """They follow from its nodes."""
    plain = to_plain(decode(World, _world()))
    assert isinstance(plain, dict)
    assert not [name for name in plain if name.startswith("_") or name == "size"]


def _world() -> bytes:
    return json.dumps(
        {
            "kind": "World",
            "schema": "1.0",
            "generation": 1,
            "nodes": [],
            "store": {"host": "a", "port": 1},
            "reason": "first_world",
        }
    ).encode()


@pytest.mark.parametrize(
    ("schema", "since"),
    [("1.0", "1" + 400 * "0"), ("\u00b2", "1"), ("1.0", 5000 * "1")],
    ids=["large", "odd", "long"],
)
def test_number_that_is_none_here_is_refused_in_a_sentence(schema: str, since: str) -> None:
    """Whoever watches such records would else list them again and again, and read none."""
    text = f'{{"kind":"Want","schema":"{schema}","writer":"user","since_unix_s":{since}}}'
    with pytest.raises(NotSupported, match="The Want record in etcd"):
        decode(Want, text.encode())

"""Secrets are taken out, whatever the spelling, and nothing else is."""

import base64
import html
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.bundle.mask import MARK, Mask, MaskedValue

VALUE = "pa\"ss'w<o>rd/ä+=\\%1"


def mask(*values: str) -> Mask:
    return Mask([MaskedValue(name="K", value=value) for value in values])


@pytest.mark.parametrize(
    "spelled",
    [
        VALUE,
        json.dumps(VALUE),
        json.dumps(VALUE, ensure_ascii=False),
        repr(VALUE),
        quote(VALUE),
        quote(VALUE, safe=""),
        html.escape(VALUE),
        base64.b64encode(VALUE.encode()).decode(),
    ],
)
def test_a_known_secret_is_found_in_every_spelling(spelled: str) -> None:
    """What a program prints is not what it was given."""
    told = mask(VALUE).text(f"before {spelled} after")
    assert MARK in told
    assert told.startswith("before ") and told.endswith(" after")
    assert spelled.strip("\"'") not in told


def test_the_place_says_which_one_stood_there() -> None:
    """A reader can go on; the name holds nothing that could be more than a name."""
    assert Mask([MaskedValue(name="A B<", value="hunter22")]).text("x hunter22") == "x ***A_B_***"


def test_the_longest_is_taken_first() -> None:
    """Else the rest of the longer one would stay."""
    assert mask("hunter22", "hunter22-and-more").text("hunter22-and-more") == "***K***"


def test_each_line_of_a_secret_is_one() -> None:
    """A key that is printed with something before each line is still a key."""
    key = "-----BEGIN-----\nMIIEowIBAAKCAQEA\nshort\n-----END-----"
    told = mask(key).text("> MIIEowIBAAKCAQEA\n> short\n")
    assert told == "> ***K***\n> short\n"


def test_bytes_that_are_no_text_are_found() -> None:
    """A variable may hold any; Python hands it on with surrogates."""
    value = b"secret-\xff\xfe".decode("utf-8", "surrogateescape")
    assert mask(value).data(b"x secret-\xff\xfe y") == b"x ***K*** y"
    assert mask(value).text(f"x {value} y") == "x ***K*** y"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("s3://user:hunter22@host/x", "s3://***@host/x"),
        ("http://h/x?X-Amz-Signature=abc&a=1", "http://h/x?X-Amz-Signature=***&a=1"),
        ("Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer ***"),
        ("WANDB_API_KEY=abcdef123", "WANDB_API_KEY=***"),
        ("{'db_password': 'hunter22', 'a': 1}", "{'db_password': '***', 'a': 1}"),
        ("train.py --api-key hunter22 --lr 1", "train.py --api-key *** --lr 1"),
        ("MY_TOKEN=hunter22", "MY_TOKEN=***"),
        *(
            (f"{name}: hunter22", f"{name}: ***")
            for name in (
                *("apikey", "api-key", "AccessKey", "private_key", "AccountKey", "passwd"),
                *("authtoken", "access-token", "apitoken", "hf_token", "hubToken", "bottoken"),
                *("session_token", "sessiontoken", "refreshtoken", "securitytoken", "SECRET_X"),
            )
        ),
        ("&sig=hunter22", "&sig=***"),
        ("AKIAABCDEFGHIJKLMNOP", "***"),
        ("hf_abcdefghijklmnopqrstuvwxyz", "***"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nx",
            "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nx",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMII", "-----BEGIN PRIVATE KEY-----***"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, told: str) -> None:
    """It was given to a script in a way that we do not know of."""
    assert Mask().text(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "step 12: loss 0.31, tokens=4096, 512 tokens/s, pad_token: <pad>",
        "the secret variable of success; key: value; keys 12345678",
        "http://host:9000/bucket/file and user@host:/path/to",
        "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
        'File "/home/me/train.py", line 12, in <module>',
    ],
)
def test_what_a_training_prints_stays(text: str) -> None:
    """A log in which everything is masked helps nobody."""
    assert Mask().text(text) == text


@given(before=st.binary(max_size=40_000), after=st.binary(max_size=100))
def test_no_bytes_around_it_hide_a_secret(before: bytes, after: bytes) -> None:
    """Also over the cuts between the blocks that are looked at."""
    told = mask("canary-7f3a9").data(before + b"canary-7f3a9" + after)
    assert b"canary-7f3a9" not in told


def test_strings_at_any_depth_of_json_are_masked_and_kept_fields_stay() -> None:
    """A record must still be one."""
    plain = {"phase": "hunter22", "why": ["a", {"x": "hunter22"}], "n": 1}
    told = mask("hunter22").plain(plain, frozenset({"phase"}))
    assert told == {"phase": "hunter22", "why": ["a", {"x": "***K***"}], "n": 1}

"""How we show who we are: from files that rotate, to one address alone, and in no sentence."""

import base64
import logging
import os
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.metrics_source import Query
from elasticd.autoscale.prometheus.client import PrometheusClient
from elasticd.autoscale.prometheus.settings import PrometheusSettings, endpoint
from elasticd.errors import CallError, EnvironmentProblem
from elasticd.records.autoscale.held import HoldReason
from tests.fixtures.scripted_prometheus import ScriptedPrometheus, scripted_prometheus

X = Query(job="j", name="m", text="x")


@pytest.fixture
def script() -> Iterator[ScriptedPrometheus]:
    with scripted_prometheus() as script:
        script.values = {"x": ["5"]}
        yield script


def put(path: Path, content: str) -> str:
    """Replace a file as whoever rotates secrets does."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(content)
    new.replace(path)
    return str(path)


def read(client: PrometheusClient) -> QueryReading:
    return client.read([X])[X]


def test_token_is_read_again_when_its_file_changes(
    script: ScriptedPrometheus, tmp_path: Path
) -> None:
    """Also one of the same length; a file that is gone holds, and one that is back goes on."""
    file = tmp_path / "token"
    settings = PrometheusSettings(url=script.url, bearer_token_file=put(file, "first\n"))
    with closing(PrometheusClient(settings)) as client:
        assert read(client).value == 5
        put(file, "other\n")
        assert read(client).value == 5
        file.unlink()
        gone = read(client)
        assert (gone.value, gone.why) == (None, HoldReason.UNREACHABLE)
        assert str(file) in gone.detail
        put(file, "third")
        assert read(client).value == 5
    shown = list(dict.fromkeys(seen.headers["Authorization"] for seen in script.seen))
    assert shown == ["Bearer first", "Bearer other", "Bearer third"]


def test_password_of_basic_auth_comes_from_a_file(
    script: ScriptedPrometheus, tmp_path: Path
) -> None:
    """In UTF-8, without the newline of its editor."""
    settings = PrometheusSettings(
        url=script.url, username="ada", password_file=put(tmp_path / "p", "s3 cr\u00e9t:x\n")
    )
    with closing(PrometheusClient(settings)) as client:
        assert read(client).value == 5
    shown = script.seen[0].headers["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(shown).decode() == "ada:s3 cr\u00e9t:x"


@pytest.mark.parametrize("is_basic", [False, True])
def test_secret_is_in_no_sentence_and_no_log(
    script: ScriptedPrometheus, tmp_path: Path, is_basic: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even where a server says back what it was shown."""
    caplog.set_level(logging.DEBUG)
    file = put(tmp_path / "secret", "hunter2-hunter2\n")
    settings = (
        PrometheusSettings(url=script.url, username="ada", password_file=file)
        if is_basic
        else PrometheusSettings(url=script.url, bearer_token_file=file)
    )
    with closing(PrometheusClient(settings)) as client:
        for status in (b"400 Bad Request", b"500 Oops", b"200 OK"):

            def echo(handler: object, status: bytes = status) -> None:
                said = dict(handler.headers)["Authorization"].encode()  # type: ignore[attr-defined]
                if is_basic:
                    said += b" or ada:hunter2-hunter2"
                length = str(len(said)).encode()
                handler.wfile.write(  # type: ignore[attr-defined]
                    b"HTTP/1.1 %s\r\nContent-Length: %s\r\n\r\n%s" % (status, length, said)
                )

            script.fault = echo
            found = read(client)
            told = f"{found!r} {client._session.shown!r} {settings!r} {caplog.text}"
            assert found.value is None and "***" in found.detail
            for secret in ("hunter2", base64.b64encode(b"ada:hunter2-hunter2").decode()):
                assert secret not in told


@pytest.mark.parametrize("content", ["", "\n", "two\nlines", "a b", "a\r\nX: y", "a\x00", "\u00e9"])
def test_token_file_that_is_none_is_refused_without_its_content(
    tmp_path: Path, content: str
) -> None:
    """A header has one line of ASCII."""
    file = put(tmp_path / "token", content)
    with pytest.raises(EnvironmentProblem) as told:
        PrometheusClient(PrometheusSettings(url="http://h", bearer_token_file=file))
    assert str(told.value) == f"{file} is no file with one line, the bearer token for Prometheus."


def test_pipe_in_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """Without a writer a read of it would never end, and it is read at each change."""
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    for settings in (
        PrometheusSettings(url="http://h", bearer_token_file=pipe),
        PrometheusSettings(url="http://h", username="ada", password_file=pipe),
    ):
        with pytest.raises(EnvironmentProblem) as told:
            PrometheusClient(settings)
        assert str(told.value) == f"{pipe} is a device or a pipe: save its content in a file."


@pytest.mark.parametrize(
    "given",
    [
        {"bearer_token_file": "missing"},
        {"username": "ada", "password_file": "missing"},
        {"ca_file": "missing"},
        {"ca_file": "junk"},
        {"cert_file": "junk", "key_file": "junk"},
        {"bearer_token_file": ""},
    ],
)
def test_file_that_is_missing_or_wrong_is_named_at_once(
    tmp_path: Path, given: dict[str, str]
) -> None:
    """Before anything is asked; a folder is no file either."""
    (tmp_path / "junk").write_text("junk")
    paths = {k: v if k == "username" else f"{tmp_path}/{v}" for k, v in given.items()}
    with pytest.raises(EnvironmentProblem, match=f"^{tmp_path}"):
        PrometheusClient(PrometheusSettings(url="https://h", **paths))  # type: ignore[arg-type]


def test_key_with_a_password_asks_for_none(tmp_path: Path) -> None:
    """A daemon would wait at its terminal for ever."""
    from cryptography.hazmat.primitives import serialization as pem

    certificate = trustme.CA().issue_cert("h")
    key = pem.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"x")
    )
    (tmp_path / "key").write_bytes(locked)
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert"))
    with pytest.raises(EnvironmentProblem, match="the key without a password"):
        PrometheusClient(
            PrometheusSettings(
                url="https://h", cert_file=f"{tmp_path}/cert", key_file=f"{tmp_path}/key"
            )
        )


# --- TLS --------------------------------------------------------------------------------------


def served(authority: trustme.CA, clients: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        clients.configure_trust(context)
    return context


def test_own_ca_and_client_certificate_are_used_and_rotate(tmp_path: Path) -> None:
    """Without our certificate nobody answers; of a CA that came later neither, until it is told."""
    authority, later = trustme.CA(), trustme.CA()
    ca, cert, key = (str(tmp_path / name) for name in ("ca", "cert", "key"))
    later.cert_pem.write_to_path(ca)
    ours = authority.issue_cert("autoscaler")
    ours.cert_chain_pems[0].write_to_path(cert)
    ours.private_key_pem.write_to_path(key)
    with scripted_prometheus(served(authority, authority)) as script:
        script.values = {"x": ["5"]}
        settings = PrometheusSettings(url=script.url, ca_file=ca, cert_file=cert, key_file=key)
        with closing(PrometheusClient(settings)) as client:
            untrusted = read(client)
            assert (untrusted.value, untrusted.why) == (None, HoldReason.UNREACHABLE)
            assert "certificate" in untrusted.detail.lower()
            authority.cert_pem.write_to_path(ca)
            os.utime(ca, (1, 1))
            assert read(client).value == 5
        bare = PrometheusSettings(url=script.url, ca_file=ca, timeout_s=30.0)
        with closing(PrometheusClient(bare)) as client:
            assert read(client).why == HoldReason.UNREACHABLE


def test_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    """Who signed it is not enough: the token goes to this host alone."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("else.example").configure_cert(context)
    with scripted_prometheus(context) as script:
        settings = PrometheusSettings(url=script.url, ca_file=str(tmp_path / "ca"))
        with closing(PrometheusClient(settings)) as client:
            assert read(client).why == HoldReason.UNREACHABLE
        assert script.seen == []


# --- the address ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://prometheus:9090", "http://prometheus:9090"),
        ("http://prometheus:9090/", "http://prometheus:9090"),
        ("HTTPS://Prometheus.example/a/b/", "https://prometheus.example:443/a/b"),
        ("http://[::1]:9090/p", "http://[::1]:9090/p"),
        ("http://10.0.0.1", "http://10.0.0.1:80"),
    ],
)
def test_address_is_understood(url: str, shown: str) -> None:
    assert endpoint(PrometheusSettings(url=url)).url == shown


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "prometheus:9090",
            "prometheus",
            "ftp://h",
            "http://",
            "http://h:x",
            "http://h:99999",
        ),
        *(
            "http://h/?a=b",
            "http://h/#a",
            "http://h/a b",
            "http://[::1",
            "unix:///x",
            "http://h/\u00e9",
        ),
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    """In one sentence that says how one looks."""
    with pytest.raises(CallError, match="http://host:9090"):
        endpoint(PrometheusSettings(url=url))


@pytest.mark.parametrize("url", ["http://ada:hunter2@h", "http://hunter2@h", "ada:hunter2@h"])
def test_password_in_the_address_is_refused_and_not_repeated(url: str) -> None:
    """It would stand in `ps`, in unit files and in shells' histories."""
    with pytest.raises(CallError) as told:
        endpoint(PrometheusSettings(url=url))
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ca_file": "c"}, "certificates count for nothing"),
        ({"url": "https://h", "cert_file": "c"}, "needs its key"),
        ({"url": "https://h", "key_file": "c"}, "needs its key"),
        ({"username": "a"}, "needs a file with the password"),
        ({"password_file": "a"}, "needs a file with the password"),
        ({"username": "a:b", "password_file": "a"}, "no colon"),
        ({"username": "a", "password_file": "a", "bearer_token_file": "t"}, "one of them"),
        ({"timeout_s": 0.0}, "time limit"),
        ({"timeout_s": float("nan")}, "time limit"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(CallError, match=says):
        endpoint(PrometheusSettings(**({"url": "http://h"} | given)))  # type: ignore[arg-type]

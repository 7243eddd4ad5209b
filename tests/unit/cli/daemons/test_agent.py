"""What an agent is told: flags, then ELASTICD_* of the environment, then defaults."""

import socket
from pathlib import Path

import pytest

from elasticd.cli.daemons.agent import agent_settings, default_node_id
from elasticd.cli.etcd_flags import endpoints
from elasticd.cli.machine import gpu_count, own_address, reachable_address, sources_towards
from elasticd.cli.main import main
from elasticd.cli.run.request import parse
from elasticd.errors import CallError, EnvironmentProblem
from elasticd_agent.settings import ForwardedRanks

FLAGS = {"etcd": "http://127.0.0.1:2379", "labels": ()}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_agent_needs_only_etcd(here: Path) -> None:
    """The rest is found out: its name, its address, its slots."""
    settings = agent_settings(FLAGS, {})
    assert settings.host == socket.gethostname()
    assert settings.address == "127.0.0.1"
    assert settings.slots >= 1 and settings.job is None
    assert settings.keep_ended_s == 7 * 86400
    assert settings.run_folder == here / "elasticd-runs"


def test_a_flag_wins_over_the_environment() -> None:
    """For every setting by the same rule."""
    environ = {
        "ELASTICD_ETCD": "http://x:1",
        "ELASTICD_SLOTS": "3",
        "ELASTICD_NODE_ID": "from-env",
        "ELASTICD_LEASE_TTL": "9",
        "ELASTICD_LABELS": "zone=a,kind=b",
        "ELASTICD_CLUSTER": "c",
    }
    flags = {"labels": (), "slots": "2", "cluster": "d", "local_addr": "10.1.2.3"}
    settings = agent_settings(flags, environ)
    assert settings.slots == 2 and settings.cluster == "d"
    assert settings.store.endpoints == ("http://x:1",)
    assert (settings.node, settings.lease_ttl_s) == ("from-env", 9.0)
    assert settings.labels == {"zone": "a", "kind": "b"}


def test_ports_are_chosen_by_the_system_unless_they_are_given() -> None:
    """Logs alone need no known port; Prometheus and a kubelet do."""
    assert agent_settings(FLAGS, {}).http_port == agent_settings(FLAGS, {}).probe_port == 0
    settings = agent_settings({**FLAGS, "http_port": "9480"}, {"ELASTICD_PROBE_PORT": "9481"})
    assert (settings.http_port, settings.probe_port) == (9480, 9481)


def test_output_is_forwarded_only_where_that_is_asked_for() -> None:
    """By the flag or the environment; another word is refused below."""
    assert agent_settings(FLAGS, {}).forwarded is ForwardedRanks.NONE
    environ = {"ELASTICD_FORWARD_OUTPUT": "all"}
    assert agent_settings(FLAGS, environ).forwarded is ForwardedRanks.ALL
    flags = {**FLAGS, "forward_output": "rank0"}
    assert agent_settings(flags, environ).forwarded is ForwardedRanks.RANK_0


@pytest.mark.parametrize(
    "flags",
    [
        {"forward_output": "rank1"},
        {"slots": "0"},
        {"keep_ended": "-1"},
        {"slots": "x"},
        {"lease_ttl": "1"},
        {"lease_ttl": "x"},
        {"job": "a b"},
        {"http_port": "0"},
        {"http_port": "65536"},
        {"http_port": "tcp://10.0.0.1:80"},
        {"probe_port": "²"},
        {"probe_port": "-1"},
        {"probe_port": "9480", "http_port": "9480"},
    ],
)
def test_a_bad_setting_is_refused_with_its_flag(flags: dict[str, str]) -> None:
    """Before anything is started."""
    with pytest.raises(CallError, match=next(iter(flags)).replace("_", "-")):
        agent_settings({**FLAGS, **flags}, {})


@pytest.mark.parametrize(
    "flag",
    [
        "http-port",
        "probe-port",
        "slots",
        "local-addr",
        "log-dir",
        "lease-ttl",
        "keep-ended",
        "event-log",
    ],
)
def test_an_empty_flag_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As of `--http-port "$PORT"`, which chose another port on each start without a word."""
    assert main(["agent", f"--{flag}", ""]) == 2
    told = capsys.readouterr().err
    assert f"--{flag}" in told and "it is empty: give a value, or leave the flag out" in told


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("gpu-1.cluster.local", "gpu-1.cluster.local"),
        ("Bad_Host!", "Bad_Host"),
        ("-x-", "x"),
        ("", "node"),
        ("a" * 80, "a" * 63),
    ],
)
def test_a_host_name_becomes_a_usable_node_name(host: str, name: str) -> None:
    """A key segment has fewer characters than a host name may have."""
    assert default_node_id(host) == name


def test_gpus_are_counted_as_cuda_would_show_them(tmp_path: Path) -> None:
    """Device files, without the control devices; CUDA_VISIBLE_DEVICES ends at what it ignores."""
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert gpu_count({}, tmp_path) == 3
    assert gpu_count({"CUDA_VISIBLE_DEVICES": "1,0"}, tmp_path) == 2
    assert gpu_count({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, tmp_path) == 1
    assert gpu_count({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == 0
    assert gpu_count({}, tmp_path / "nothing") == 0


ROUTES = {
    "127.0.0.1": ["127.0.0.1"],
    "localhost": ["::1", "127.0.0.1"],
    "own-name": ["127.0.0.1"],
    "b": ["10.1.2.3"],
    "six": ["fe80::1%eth0", "fd00::3"],
}


def address_towards(*endpoints: str) -> str:
    return own_address(endpoints, lambda host, port: ROUTES.get(host, []))


def test_the_address_is_that_of_the_way_to_etcd() -> None:
    """The first endpoint may be this machine, or be gone from DNS: the others are asked too."""
    assert address_towards("http://b:2379") == "10.1.2.3"
    assert address_towards("http://own-name:2379", "http://b:2379") == "10.1.2.3"
    assert address_towards("http://gone:2379", "http://b:2379") == "10.1.2.3"
    assert address_towards("http://127.0.0.1:2379", "http://b:2379") == "10.1.2.3"
    assert address_towards("http://six:2379") == "fd00::3"


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:2379", "http://localhost:2379"])
def test_the_address_is_loopback_where_the_endpoint_says_so(endpoint: str) -> None:
    """Agents of one machine need no other; the real resolver is asked here."""
    assert own_address([endpoint]) == "127.0.0.1"


def test_the_address_of_ipv6_is_one_that_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would rather take a temporary one (RFC 8981), which is gone after days."""
    wanted: list[int] = []

    class Probe(socket.socket):
        def connect(self, _: object) -> None:
            wanted.append(self.getsockopt(socket.IPPROTO_IPV6, 72))
            raise OSError("no route")

    monkeypatch.setattr(socket, "socket", Probe)
    assert list(sources_towards("::1", 2379)) == []
    assert wanted and all(each & 2 for each in wanted)


@pytest.mark.parametrize(
    "endpoint", ["http://fd00::1:2379", "http://[fd00::1:2379", "http://[zz::1]:2379", "::1:2379"]
)
def test_address_of_ipv6_that_is_written_wrongly_is_refused(endpoint: str) -> None:
    """An agent looked for its own address on the way there, and ended in a traceback."""
    with pytest.raises(CallError, match=r"write http://host:2379, http://\[fd00::1\]:2379"):
        endpoints(endpoint)


@pytest.mark.parametrize("names", [["own-name"], ["gone"], ["127.0.0.1", "gone"]])
def test_an_agent_never_registers_loopback_for_a_name(names: list[str]) -> None:
    """Peers would find only themselves there, and declare this agent dead."""
    with pytest.raises(EnvironmentProblem, match="--local-addr"):
        address_towards(*(f"http://{name}:2379" for name in names))


NAMES = {
    "gpu1": "127.0.1.1",  # Debian's /etc/hosts has it so for a machine's own name.
    "b": "10.1.2.3",
    **{each: each for each in ("127.0.0.1", "127.0.1.1", "0.0.0.0", "::1", "fd00::3", "10.1.2.3")},
}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolved(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        family = socket.AF_INET6 if ":" in NAMES[host] else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 0, "", (NAMES[host], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("gpu1", "gpu1 is 127.0.1.1 on this machine, where others do not reach it"),
        ("127.0.0.1", "127.0.0.1 is this machine alone, where others do not reach it"),
        ("0.0.0.0", "0.0.0.0 is this machine alone"),
        ("::1", "::1 is this machine alone"),
        ("gone", "gone does not resolve on this machine: give its address"),
    ],
)
def test_address_that_others_do_not_reach_is_refused(given: str, said: str) -> None:
    """Peers were refused at the real address, took that for this agent's death, and went on."""
    etcd = "http://127.0.0.1:2379,http://b:2379"
    flags = {**FLAGS, "etcd": etcd, "local_addr": given}
    with pytest.raises((CallError, EnvironmentProblem), match=f"--local-addr {said}"):
        agent_settings(flags, {})
    del flags["local_addr"]
    with pytest.raises((CallError, EnvironmentProblem), match=f"--local-addr {said}"):
        agent_settings(flags, {"ELASTICD_LOCAL_ADDR": given})
    call = ["--join", "--etcd", etcd, "--job", "j", "--local-addr", given, "train.py"]
    with pytest.raises((CallError, EnvironmentProblem), match=f"--local-addr {said}"):
        parse(call, {})


@pytest.mark.usefixtures("names")
def test_doctor_refuses_an_address_that_others_do_not_reach(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Before the first finding: it is the address that an agent would be given."""
    assert main(["doctor", "--etcd", "http://b:2379", "--local-addr", "gpu1"]) == 2
    said = capfd.readouterr()
    assert "--local-addr gpu1 is 127.0.1.1 on this machine" in said.err and not said.out


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("given", "endpoint"),
    [
        ("127.0.0.1", "http://127.0.0.1:2379"),
        ("gpu1", "http://localhost:2379"),
        ("::1", "http://[::1]:2379"),
        ("b", "http://b:2379"),
        ("fd00::3", "http://b:2379"),
        ("10.1.2.3", "http://127.0.0.1:2379"),
    ],
)
def test_address_is_kept_as_it_was_given(given: str, endpoint: str) -> None:
    """A loopback address is right where all agents and etcd are on one machine."""
    assert reachable_address(given, [endpoint]) == given


def test_loopback_is_right_where_etcd_is_behind_a_socket_of_this_machine() -> None:
    """That of `elasticd run` on one machine is."""
    assert reachable_address("127.0.0.1", ["unix:///run/etcd.sock"]) == "127.0.0.1"

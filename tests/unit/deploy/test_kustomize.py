"""The manifests call commands that there are, and keep to the rules of a restricted namespace."""

import re
import subprocess
from collections.abc import Mapping
from typing import Any

import click
import pytest
import yaml

from elasticd import __version__
from elasticd.kube.resource.__main__ import crd_text
from elasticd.store.private_etcd.etcd_program import find_etcd
from elasticd_agent.http_server.probes import BUSY_LIMIT_S
from elasticd_agent.loop.owner_watchdog import LIMIT_S
from elasticd_agent.pod.keeper_wait import KEEPER_WAIT_S
from tests.fixtures.manifests import (
    DEPLOY,
    OVERLAYS,
    SHUTDOWN_S,
    Manifest,
    built,
    containers,
    parsed,
    pods,
    variables,
)

BASE = built("base")
EXCEPTIONS: Mapping[str, str] = {}
"""Pods that Pod Security's `restricted` would refuse, and for what reason: none so far."""
WITHOUT_NAMESPACE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Namespace",
}
VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"),
    *("projected", "secret"),
}
"""Those that `restricted` allows."""
ABOVE_THE_GRACE_S = 90
"""On top of the largest --shutdown-timeout: the agent's goodbye, and its keepers."""


def one(manifests: tuple[Manifest, ...], kind: str, name: str) -> Any:
    """Find what has this kind and name."""
    (found,) = (m for m in manifests if (m["kind"], m["metadata"]["name"]) == (kind, name))
    return found


def agent_of(manifests: tuple[Manifest, ...]) -> Any:
    return one(manifests, "DaemonSet", "elasticd-agent")["spec"]["template"]["spec"]


def template_of(manifest: Manifest) -> Any:
    spec = manifest["spec"]
    return spec["jobTemplate"]["spec"]["template"] if "jobTemplate" in spec else spec["template"]


@pytest.mark.parametrize("folder", OVERLAYS)
def test_each_flag_is_one_that_the_command_has(folder: str) -> None:
    """And each variable one that it reads: what nobody calls rots."""
    settings = one(built(folder), "ConfigMap", "elasticd")["data"]
    count = 0
    for name, container in containers(built(folder)):
        if name.startswith("elasticd-etcd"):
            continue
        assert "command" not in container, "the image has one"
        command = parsed(container["args"])
        named = {each["name"] for each in container.get("env", ())} | set(settings)
        assert {n for n in named if n.startswith("ELASTICD_")} <= variables(command)
        assert {"configMapRef": {"name": "elasticd"}} in container["envFrom"]
        count += 1
    assert count >= 3


@pytest.mark.parametrize(
    "words", [["agnet"], ["agent", "--probe-prot=1"], ["autoscale", "run", "--listn=0:1"]]
)
def test_a_flag_that_does_not_fit_is_found(words: list[str]) -> None:
    """Else all of the above says nothing."""
    with pytest.raises((AssertionError, click.UsageError)):
        parsed(words)


@pytest.mark.parametrize("folder", OVERLAYS)
def test_pods_are_restricted(folder: str) -> None:
    """As the namespace's label has the API server check it, from 1.25 on; here for all versions."""
    assert set(EXCEPTIONS) <= {name for name, _ in pods(built(folder))}
    for name, pod in pods(built(folder)):
        assert not pod["enableServiceLinks"], name
        assert pod["automountServiceAccountToken"] is (name == "elasticd-operator"), name
        assert pod["serviceAccountName"] == name
        if name in EXCEPTIONS:
            continue
        context = pod["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] > 0
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        for volume in pod.get("volumes", ()):
            assert set(volume) - {"name"} <= VOLUMES, volume
    for name, container in containers(built(folder)):
        if name not in EXCEPTIONS:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert all("hostPort" not in port for port in container.get("ports", ()))


@pytest.mark.parametrize("folder", OVERLAYS)
def test_names_and_labels_fit_together(folder: str) -> None:
    """A selector that selects nothing is refused by nobody."""
    manifests = built(folder)
    parts = {
        m["metadata"]["labels"].get("app.kubernetes.io/component"): template_of(m)
        for m in manifests
        if m["kind"] in ("CronJob", "DaemonSet", "Deployment", "StatefulSet")
    }
    accounts = {m["metadata"]["name"] for m in manifests if m["kind"] == "ServiceAccount"}
    assert accounts == {template["spec"]["serviceAccountName"] for template in parts.values()}
    for each in manifests:
        if each["kind"] in WITHOUT_NAMESPACE:
            continue
        assert each["metadata"]["namespace"] == "elasticd", each["metadata"]["name"]
        selector = each.get("spec", {}).get("selector") or each.get("spec", {}).get("podSelector")
        if not selector:
            continue
        wanted = selector.get("matchLabels") or {
            k: v for k, v in selector.items() if k != "matchExpressions"
        }
        assert any(
            wanted.items() <= template["metadata"]["labels"].items() for template in parts.values()
        ), each["metadata"]["name"]
    for name, container in containers(manifests):
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
        assert len(set(ports.values())) == len(ports), name
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container.get(kind, {})
            for way in ("httpGet", "tcpSocket"):
                assert way not in probe or probe[way]["port"] in ports, name
    for name, pod in pods(manifests):
        volumes = {v["name"] for v in pod.get("volumes", ())}
        claims = one(manifests, "StatefulSet", name)["spec"] if name == "elasticd-etcd" else {}
        volumes |= {c["metadata"]["name"] for c in claims.get("volumeClaimTemplates") or ()}
        all_containers = [*pod.get("initContainers", ()), *pod["containers"]]
        mounted = {mount["name"] for each in all_containers for mount in each["volumeMounts"]}
        assert mounted == volumes, name


@pytest.mark.parametrize("folder", OVERLAYS)
def test_agent_has_time_to_leave(folder: str) -> None:
    """Workers get their --shutdown-timeout, keepers what they take, before it is killed."""
    pod = agent_of(built(folder))
    (container,) = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] >= SHUTDOWN_S + ABOVE_THE_GRACE_S
    assert f"--keeper-wait={KEEPER_WAIT_S:g}" in container["args"]
    assert "lifecycle" not in container, "SIGTERM is all that it takes"


def test_agent_is_not_restarted_before_its_lease_is_let_go() -> None:
    """A turn of its owner's thread that takes long is no reason to end its workers."""
    (container,) = agent_of(BASE)["containers"]
    probe = container["livenessProbe"]
    assert probe["httpGet"]["path"] == "/healthz"
    flags = dict(word.split("=") for word in container["args"] if "=" in word)
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert ports == {"http": flags["--http-port"], "probe": flags["--probe-port"]}
    first_to_last_s = probe["periodSeconds"] * (probe["failureThreshold"] - 1)
    assert BUSY_LIMIT_S + first_to_last_s > LIMIT_S


def test_agent_that_starts_slowly_is_not_restarted() -> None:
    """From a cold disk; what would restart it is the same question, asked for ten minutes."""
    (container,) = agent_of(BASE)["containers"]
    probe, later = container["startupProbe"], container["livenessProbe"]
    assert probe["httpGet"] == later["httpGet"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 600


def test_agent_has_each_folder_that_it_writes_to() -> None:
    """Its root is read-only."""
    (container,) = agent_of(BASE)["containers"]
    flags = dict(word.split("=") for word in container["args"] if "=" in word)
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {flags["--log-dir"], "/tmp", "/dev/shm"}


def test_one_agent_at_a_time_is_replaced() -> None:
    """Each costs the jobs a change of world."""
    strategy = one(BASE, "DaemonSet", "elasticd-agent")["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}


@pytest.mark.parametrize(
    "folder",
    [
        "base",
        *(f"overlays/{name}" for name in ("gpu-exclusive", "gpu-dra", "own-etcd", "tls-etcd")),
    ],
)
def test_a_rollout_leaves_jobs_the_time_to_hand_on_their_state(folder: str) -> None:
    """A pod that is ready has it; the minute is for what no probe sees."""
    agents = one(built(folder), "DaemonSet", "elasticd-agent")["spec"]
    assert agents["minReadySeconds"] >= 60
    assert agents["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1}


@pytest.mark.parametrize("folder", ["base", "overlays/cpu-dev", "overlays/tls-etcd"])
def test_etcd_has_the_members_that_all_look_for(folder: str) -> None:
    """Three, or one to try it: a quorum of other members never answers."""
    found = one(built(folder), "StatefulSet", "elasticd-etcd")["spec"]
    (container,) = found["template"]["spec"]["containers"]
    (members,) = (e["value"] for e in container["env"] if e["name"] == "MEMBERS")
    names = [f"elasticd-etcd-{number}" for number in range(found["replicas"])]
    scheme = "https" if "tls" in folder else "http"
    assert members == ",".join(f"{n}={scheme}://{n}.elasticd-etcd:2380" for n in names)
    settings = one(built(folder), "ConfigMap", "elasticd")["data"]
    assert settings["ELASTICD_ETCD"] == ",".join(
        f"{scheme}://{n}.elasticd-etcd:2379" for n in names
    )
    assert (
        found["serviceName"] == one(built(folder), "Service", "elasticd-etcd")["metadata"]["name"]
    )


@pytest.mark.parametrize("folder", OVERLAYS)
def test_nothing_is_reached_unless_it_is_named(folder: str) -> None:
    """And no policy names the whole world."""
    policies = [m["spec"] for m in built(folder) if m["kind"] == "NetworkPolicy"]
    assert {"podSelector": {}, "policyTypes": ["Ingress"]} in policies
    for policy in policies:
        assert policy["policyTypes"] == ["Ingress"]
        for rule in policy.get("ingress", ()):
            assert rule["from"] and all(source for source in rule["from"])


@pytest.mark.parametrize("folder", OVERLAYS)
def test_what_has_several_pods_loses_one_at_a_time(folder: str) -> None:
    """`kubectl drain` of two nodes at once must not take etcd's quorum."""
    budgets = {
        m["metadata"]["name"]: m for m in built(folder) if m["kind"] == "PodDisruptionBudget"
    }
    version = "policy/v1beta1" if folder.endswith("1.20") else "policy/v1"
    wanted = {
        m["metadata"]["name"]
        for m in built(folder)
        if m["kind"] in ("Deployment", "StatefulSet") and m["spec"].get("replicas", 1) > 1
    }
    assert wanted <= set(budgets)
    for budget in budgets.values():
        assert budget["apiVersion"] == version
        assert budget["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("folder", OVERLAYS)
def test_what_is_not_ready_while_etcd_is_away_keeps_no_node(folder: str) -> None:
    """A drain would wait for etcd. etcd's own member goes while the others do without it.

    Servers before 1.26 refuse the field.
    """
    policies = {
        m["metadata"]["name"]: m["spec"].get("unhealthyPodEvictionPolicy")
        for m in built(folder)
        if m["kind"] == "PodDisruptionBudget"
    }
    wanted: dict[str, str | None] = {
        "elasticd-autoscaler": "AlwaysAllow",
        "elasticd-etcd": "IfHealthyBudget",
        "elasticd-operator": "AlwaysAllow",
    }
    if folder.endswith("1.20"):
        wanted = dict.fromkeys(wanted)
    assert policies == {name: wanted[name] for name in policies}


@pytest.mark.parametrize("folder", OVERLAYS)
def test_pods_of_a_kind_prefer_nodes_of_their_own(folder: str) -> None:
    """One node that is lost takes one of them. It is a wish: a cluster of one node has them all."""
    kinds = [
        m
        for m in built(folder)
        if m["kind"] in ("Deployment", "StatefulSet") and m["spec"].get("replicas", 1) > 1
    ]
    assert {m["metadata"]["name"] for m in kinds} >= {"elasticd-autoscaler", "elasticd-operator"}
    for each in kinds:
        template = template_of(each)
        apart = template["spec"]["affinity"]["podAntiAffinity"]
        (wish,) = apart["preferredDuringSchedulingIgnoredDuringExecution"]
        term = wish["podAffinityTerm"]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert term["labelSelector"]["matchLabels"] == each["spec"]["selector"]["matchLabels"]


def test_crd_of_an_old_server_is_the_one_that_is_made_for_it() -> None:
    """The overlay takes out what the generated file lacks."""
    (found,) = (
        m for m in built("overlays/kubernetes-1.20") if m["kind"] == "CustomResourceDefinition"
    )
    assert found == yaml.safe_load(crd_text(has_cel=False))
    (found,) = (m for m in BASE if m["kind"] == "CustomResourceDefinition")
    assert found == yaml.safe_load(crd_text(has_cel=True))


def test_gpus_of_a_node_are_the_agents() -> None:
    """As many as the nodes have that it is for, and as many slots."""
    pod = agent_of(built("overlays/gpu-exclusive"))
    (container,) = pod["containers"]
    count = container["resources"]["limits"]["nvidia.com/gpu"]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.count": count}
    assert {"name": "ELASTICD_SLOTS", "value": count} in container["env"]


def test_agents_run_anywhere_to_try_it() -> None:
    """Without a GPU on any node."""
    pod = agent_of(built("overlays/cpu-dev"))
    assert not pod.get("affinity") and "nodeSelector" not in pod


def test_certificates_are_where_the_settings_say() -> None:
    """In each pod that speaks to etcd."""
    manifests = built("overlays/own-etcd")
    data = one(manifests, "ConfigMap", "elasticd")["data"]
    paths = {value for name, value in data.items() if name[-6:] in ("CACERT", "D_CERT", "CD_KEY")}
    assert len(paths) == 3 and data["ELASTICD_ETCD"].startswith("https://")
    for name, container in containers(manifests):
        folders = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {path.rpartition("/")[0] for path in paths} <= folders, name
    for name, pod in pods(manifests):
        modes = {v["secret"]["defaultMode"] for v in pod["volumes"] if "secret" in v}
        assert modes == {0o440} and pod["securityContext"]["fsGroup"] > 0, name
    assert not [m for m in manifests if m["metadata"]["name"] == "elasticd-etcd"]


def test_etcd_with_tls_asks_everybody_for_a_certificate_and_is_saved() -> None:
    """Clients and members; what is saved is read by the same certificate as the agents have."""
    manifests = built("overlays/tls-etcd")
    (etcd,) = one(manifests, "StatefulSet", "elasticd-etcd")["spec"]["template"]["spec"][
        "containers"
    ]
    words = set(etcd["command"])
    assert {"--client-cert-auth", "--peer-client-cert-auth"} <= words
    assert all("https://" in word for word in words if "-urls=" in word and "metrics" not in word)
    plain = one(BASE, "StatefulSet", "elasticd-etcd")["spec"]["template"]["spec"]["containers"][0]
    kept = {word for word in plain["command"] if "-urls=" not in word}
    assert kept <= words, "the patch replaces the whole command: what the base says stands here too"
    backup = dict(pods(manifests))["elasticd-etcd-backup"]
    (save,), (prune,) = backup["initContainers"], backup["containers"]
    assert save["image"] == etcd["image"] and save["command"][-3:-1] == ["snapshot", "save"]
    (mount,) = (m for m in save["volumeMounts"] if m["name"] == "backup")
    assert mount["subPathExpr"] == "$(POD_NAME)" and save["command"][-1].startswith("/backup/")
    compile(prune["command"][-1], "prune", "exec")


def test_each_flag_of_etcd_is_one_that_it_has() -> None:
    """As the etcd of this machine tells."""
    told = subprocess.run([find_etcd(), "--help"], capture_output=True, text=True, check=False)
    known = set(re.findall(r"--[a-z][a-z-]+", told.stdout + told.stderr))
    for folder in ("base", "overlays/cpu-dev", "overlays/tls-etcd"):
        (etcd,) = (c for name, c in containers(built(folder)) if name == "elasticd-etcd")
        assert {word.partition("=")[0] for word in etcd["command"][1:]} <= known


def test_claim_of_all_gpus_is_the_one_that_agents_name() -> None:
    """And nothing counts them: an agent has a slot for each that it sees."""
    manifests = built("overlays/gpu-dra")
    pod = agent_of(manifests)
    (claim,), (container,) = pod["resourceClaims"], pod["containers"]
    template = one(manifests, "ResourceClaimTemplate", claim["resourceClaimTemplateName"])
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["allocationMode"] == "All"
    assert container["resources"]["claims"] == [{"name": claim["name"]}]
    assert "ELASTICD_SLOTS" not in {each["name"] for each in container["env"]}


def test_alerts_and_dashboard_are_those_that_are_shipped() -> None:
    """One text for both: what is changed there is forgotten here."""
    manifests = built("overlays/monitoring")
    alerts = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yml").read_text())
    assert one(manifests, "PrometheusRule", "elasticd")["spec"] == alerts
    board = one(manifests, "ConfigMap", "elasticd-grafana-dashboard")
    text = (DEPLOY / "monitoring" / "grafana-dashboard.json").read_text()
    assert board["data"] == {"grafana-dashboard.json": text}
    ports = {c["name"]: {p["name"] for p in c["ports"]} for _, c in containers(manifests)}
    jobs = set()
    for monitor in (m["spec"] for m in manifests if m["kind"] == "PodMonitor"):
        part = monitor["selector"]["matchLabels"]["app.kubernetes.io/component"]
        for endpoint in monitor["podMetricsEndpoints"]:
            assert endpoint["port"] in ports[part]
            jobs |= {r["replacement"] for r in endpoint["relabelings"] if r["targetLabel"] == "job"}
    # What a rule asks for by the name of a job is scraped under that name.
    assert {"elasticd-autoscaler"} <= set(re.findall(r'job="([^"]+)"', str(alerts))) <= jobs


def test_images_have_the_version_of_this_tree() -> None:
    """Pinned: a node that pulls `latest` next week runs something else."""
    images = {container["image"] for _, container in containers(BASE)}
    for image in images:
        name, _, tag = image.partition(":")
        assert tag not in ("", "latest"), image
        assert name == "etcd" or tag == __version__


def test_no_server_listens_to_one_family_alone() -> None:
    """Pods may have IPv6 alone, and are probed there; Go's 0.0.0.0, as of etcd, is of both."""
    given = [
        argument
        for _, container in containers(BASE)
        for argument in container.get("args", ())
        if argument.startswith("--listen=")
    ]
    assert len(given) == 2
    assert all(argument.startswith("--listen=*:") for argument in given)

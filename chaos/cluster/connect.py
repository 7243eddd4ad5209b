"""The connection to the API server: as the pod's ServiceAccount, or as a kubeconfig says."""

from typing import Any

from chaos.cluster.cluster_api import ClusterApi
from chaos.cluster.pod_exec import PodExec
from chaos.error import WrongInput
from elasticd.errors import EnvironmentProblem
from elasticd.kube.api.connection import open_connection

__all__ = ["connect"]


def connect(kubeconfig: str, *, namespace: str, agents: str) -> ClusterApi:
    """Read which API server is meant; asks nothing yet.

    Args:
        kubeconfig: a file; empty: as a pod of the cluster.
        namespace: of the ElasticJobs.
        agents: the namespace of the agents' pods.

    Raises:
        WrongInput: there is no such configuration, or it cannot be used.
    """
    try:
        connection = open_connection(kubeconfig)
    except EnvironmentProblem as exc:
        raise WrongInput(str(exc)) from exc
    return ClusterApi(
        connection,
        PodExec(_configuration(kubeconfig), agents),
        namespace=namespace,
        agents=agents,
    )


def _configuration(kubeconfig: str) -> Any:
    """Read the same once more, for the connections that an exec needs."""
    from kubernetes import client, config

    settings = client.Configuration()
    if kubeconfig:
        config.load_kube_config(
            config_file=kubeconfig, client_configuration=settings, persist_config=False
        )
    else:
        config.load_incluster_config(client_configuration=settings)
    return settings

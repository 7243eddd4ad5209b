"""The calls of the agents that a run starts on this machine: their slots, GPUs and environment."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from elasticd.channel.fork_server import SERVER_VARIABLE
from elasticd.cli.run.request import RunRequest
from elasticd.control.local_run.launch import AgentCall
from elasticd.records.ids import NodeId
from elasticd.records.job import JobSpec
from elasticd.store.api import StoreSettings
from elasticd_agent.worker_setup.gpus import visible_gpus

__all__ = ["AgentCalls"]


@dataclass(frozen=True, slots=True)
class AgentCalls:
    """Makes the calls; `environ_here` is the environment of this process."""

    request: RunRequest
    spec: JobSpec
    run_folder: Path
    environ_here: Mapping[str, str]

    def local(self, settings: StoreSettings, fork_server: str) -> list[AgentCall]:
        """Return the calls of all agents of a local run, which share this machine.

        `fork_server` is the path of the socket of their fork server; empty if there is none.
        """
        count, slots = self.request.local_agents, self.request.slots
        gpus = visible_gpus(self.environ_here)
        calls = []
        for number in range(count):
            env = self.environ()
            if fork_server:
                env[SERVER_VARIABLE] = fork_server
            if count > 1:
                # The agents share the cores of this machine.
                env.setdefault("OMP_NUM_THREADS", "1")
            if count > 1 and len(gpus.names) >= count * slots:
                # The agents share this machine: each gets its own part of the GPUs.
                env.update(gpus.mask(list(gpus.names[number * slots : (number + 1) * slots])))
            call = self._call(NodeId(f"local-{number}"), settings, env)
            calls.append(replace(call, address="127.0.0.1"))
        return calls

    def one(self, node: NodeId, settings: StoreSettings) -> AgentCall:
        """Return the call of the only agent of this machine, which serves beside other hosts."""
        return self._call(node, settings, self.environ())

    def environ(self) -> dict[str, str]:
        """Return the environment without elasticd's variables, which the agents get as flags."""
        return {k: v for k, v in self.environ_here.items() if not k.startswith("ELASTICD_")}

    def _call(self, node: NodeId, settings: StoreSettings, env: Mapping[str, str]) -> AgentCall:
        return AgentCall(
            node=node,
            job=self.spec.name,
            store=settings,
            cluster=self.request.cluster,
            slots=self.request.slots,
            run_folder=self.run_folder,
            log_path=self.run_folder / self.spec.name / "agents" / f"{node}.log",
            lease_ttl_s=self.request.lease_ttl_s,
            address=self.request.local_address,
            env=env,
        )

"""Every key in etcd is spelled here and nowhere else."""

from dataclasses import dataclass

from elasticd.records.ids import Generation, JobName, Life, NodeId

__all__ = ["Keys"]


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one cluster. Prefixes end with a slash."""

    cluster: str = "default"

    @property
    def root(self) -> str:
        return f"/elasticd/v1/{self.cluster}/"

    @property
    def nodes(self) -> str:
        return f"{self.root}nodes/"

    def node(self, node: NodeId) -> str:
        return f"{self.nodes}{node}"

    @property
    def drains(self) -> str:
        return f"{self.root}drains/"

    def drain(self, node: NodeId) -> str:
        return f"{self.drains}{node}"

    @property
    def node_labels(self) -> str:
        return f"{self.root}node-labels/"

    def labels_of(self, node: NodeId) -> str:
        return f"{self.node_labels}{node}"

    @property
    def active(self) -> str:
        """The jobs that are not over: what every daemon watches, so that it need not watch all."""
        return f"{self.root}active/"

    def active_job(self, job: JobName) -> str:
        return f"{self.active}{job}"

    @property
    def ended(self) -> str:
        """The jobs that are over and whose records still stand."""
        return f"{self.root}ended/"

    def ended_job(self, job: JobName) -> str:
        return f"{self.ended}{job}"

    @property
    def trials(self) -> str:
        """Return where `elasticd doctor` writes for a moment, to see that it may."""
        return f"{self.root}trials/"

    def trial(self, token: str) -> str:
        return f"{self.trials}{token}"

    @property
    def jobs(self) -> str:
        return f"{self.root}jobs/"

    def job(self, job: JobName) -> str:
        return f"{self.jobs}{job}/"

    def spec(self, job: JobName) -> str:
        return f"{self.job(job)}spec"

    def wants(self, job: JobName) -> str:
        return f"{self.job(job)}wants/"

    def want(self, job: JobName, writer: str) -> str:
        return f"{self.wants(job)}{writer}"

    def members(self, job: JobName) -> str:
        return f"{self.job(job)}members/"

    def member(self, job: JobName, node: NodeId) -> str:
        return f"{self.members(job)}{node}"

    def world(self, job: JobName) -> str:
        return f"{self.job(job)}world"

    def status(self, job: JobName) -> str:
        return f"{self.job(job)}status"

    def late(self, job: JobName) -> str:
        return f"{self.job(job)}late"

    def incidents(self, job: JobName) -> str:
        return f"{self.job(job)}incidents/"

    def incident(self, job: JobName, generation: Generation, node: NodeId) -> str:
        return f"{self.incidents_of(job, generation)}{node}"

    def incidents_of(self, job: JobName, generation: Generation) -> str:
        # Zero-padded, so that the order of the keys is the order of the generations.
        return f"{self.incidents(job)}{generation:08d}/"

    def progress(self, job: JobName) -> str:
        return f"{self.job(job)}progress"

    def times_spent(self, job: JobName) -> str:
        return f"{self.job(job)}time-spent/"

    def time_spent(self, job: JobName, node: NodeId, life: Life) -> str:
        """The key of one agent: another process on the same node counts from 0."""
        return f"{self.times_spent(job)}{node}/{life}"

    @property
    def autoscaler_election(self) -> str:
        """The key that the leading autoscaler holds under its lease; the others stand by."""
        return f"{self.root}election/autoscaler"

    def operator_election(self, namespace: str = "") -> str:
        """The key that the leading operator holds under its lease; the others stand by.

        An operator that looks after a single namespace of Kubernetes competes for that namespace.
        """
        return f"{self.root}election/operator{'/' if namespace else ''}{namespace}"

    def operator_offer(self, namespace: str = "") -> str:
        """The key by which the operator that leads offers its lead to one that can do the work."""
        return f"{self.root}election/offers/operator{'/' if namespace else ''}{namespace}"

    def policy(self, job: JobName) -> str:
        return f"{self.job(job)}policy"

    def curve(self, job: JobName) -> str:
        return f"{self.job(job)}curve"

    def autoscaler_memory(self, job: JobName) -> str:
        return f"{self.job(job)}autoscaler"

    def decisions(self, job: JobName) -> str:
        return f"{self.job(job)}decisions/"

    def decision(self, job: JobName, number: int) -> str:
        # Zero-padded, so that the order of the keys is the order of the decisions.
        return f"{self.decisions(job)}{number:08d}"

    def results(self, job: JobName) -> str:
        return f"{self.job(job)}results/"

    def result(self, job: JobName, node: NodeId) -> str:
        return f"{self.results(job)}{node}"

"""How long a rank that fell out of a collective waits for another world."""

from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec
from elasticd.train.run import EXPLANATION_S
from tests.sim import trainee


def test_state_is_kept_for_as_long_as_agents_keep_workers_without_etcd() -> None:
    """A worker that is killed while etcd is away would cost the state of all: nobody can say so."""
    spec = JobSpec(name=JobName("j"), uid="u1", entry_kind=EntryKind.SCRIPT, entry="t.py")
    assert spec.isolation_limit_s <= EXPLANATION_S
    assert trainee.EXPLANATION_S == EXPLANATION_S

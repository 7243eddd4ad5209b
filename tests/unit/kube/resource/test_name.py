"""Names of Kubernetes, which may be longer than those of elasticd."""

from elasticd.kube.resource.elastic_job import ElasticJob
from elasticd.kube.resource.name import (
    NAME_LIMIT,
    job_name,
    job_name_apart,
    job_owner,
    owner_prefix,
    shortened,
)
from elasticd.records.ids import checked_name

SHORT = ElasticJob(namespace="team", name="x", uid="u1")
LONG = ElasticJob(namespace="n" * 63, name="a.b-" * 50 + "c", uid="u1")


def test_a_short_name_stays() -> None:
    assert job_name(SHORT) == "team.x"
    assert shortened("node-7") == "node-7"


def test_a_long_name_can_be_used_and_is_its_own() -> None:
    other = ElasticJob(namespace=LONG.namespace, name=LONG.name + "d", uid="u2")
    assert job_name(LONG) != job_name(other)
    for job in (SHORT, LONG, other):
        for name in (job_name(job), job_name_apart(job)):
            assert len(name) <= NAME_LIMIT
            assert checked_name("job", name) == name


def test_a_name_apart_is_the_objects_own() -> None:
    again = ElasticJob(namespace="team", name="x", uid="u2")
    assert len({job_name(SHORT), job_name_apart(SHORT), job_name_apart(again)}) == 3


def test_the_cut_of_a_long_name_leaves_no_dot_before_the_hash() -> None:
    name = shortened("a" * 53 + "." + "b" * 40)
    assert ".-" not in name and checked_name("node", name) == name


def test_the_mark_of_a_job_names_its_object_and_cluster() -> None:
    assert job_owner(SHORT, "c1") == "kubernetes/c1/team/x"
    assert job_owner(SHORT, "c1").startswith(owner_prefix("c1"))
    assert not job_owner(SHORT, "c10").startswith(owner_prefix("c1"))

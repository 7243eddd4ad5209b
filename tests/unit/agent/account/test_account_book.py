"""The accounts of all jobs of an agent."""

from elasticd.goodput.cause import TimeCause
from elasticd.records.ids import JobName, Slot
from elasticd.records.job import JobSpec
from elasticd_agent.account.account_book import AccountBook
from tests.sim.schedule import spec_of

JOB = JobName("job")


def spec(uid: str = "u1", name: str = "job") -> JobSpec:
    return spec_of(name=JobName(name), uid=uid)


def test_an_account_goes_on_where_the_same_job_is_joined_again() -> None:
    book = AccountBook()
    first = book.of(spec(), 0.0)
    book.left(JOB, 5.0)
    assert book.of(spec(), 9.0) is first
    book.left(JOB, 10.0)
    assert book.of(spec("u2"), 11.0) is not first


def test_a_jobs_account_ends_ten_minutes_after_the_job_was_left() -> None:
    book = AccountBook()
    account = book.of(spec(), 0.0)
    account.account = account.account.hold(Slot(0), TimeCause.WAIT, now_s=0.0)
    assert book.jobs(5000.0) == (JOB,)
    book.left(JOB, 5000.0)
    assert book.jobs(5599.0) == (JOB,)
    assert book.jobs(5601.0) == ()
    book.of(spec(name="other"), 5601.0)
    assert book.seconds(JOB, 5601.0) == {}, "it is forgotten"


def test_it_tells_all_time_or_what_will_not_be_taken_back() -> None:
    book = AccountBook()
    account = book.of(spec(), 0.0)
    account.account = account.account.hold(Slot(0), TimeCause.TRAIN, now_s=0.0)
    assert book.seconds(JOB, 4.0) == {TimeCause.TRAIN: 4.0}
    assert book.counted(JOB, 4.0) == {}
    assert book.seconds(JobName("none"), 4.0) == {}

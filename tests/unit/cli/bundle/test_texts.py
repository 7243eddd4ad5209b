"""What a bundle says of a job, in words and for programs."""

import json

from elasticd.cli.bundle.texts import report_texts
from elasticd.control.report.report import read_job
from elasticd.records.account.late import LateNode
from elasticd.records.ids import NodeId
from tests.unit.dashboard.records_case import BEGAN_S, JOB, KEYS, be_late, filled


def test_late_nodes_are_in_it_for_programs_too() -> None:
    """A job that had none has no file of them."""
    store = filled()
    report = read_job(store, KEYS, JOB)
    assert report is not None and "data/late.json" not in report_texts(report, ())
    late = LateNode(node=NodeId("node-1"), ratio=0.34, cost_nodes=0.8, since_unix_s=BEGAN_S)
    be_late(store, late)
    report = read_job(store, KEYS, JOB)
    assert report is not None
    texts = report_texts(report, ())
    (told,) = json.loads(texts["data/late.json"])
    assert (told["node"], told["ratio"]) == ("node-1", 0.34)
    assert "node node-1 is 34 % late" in texts["why.txt"]

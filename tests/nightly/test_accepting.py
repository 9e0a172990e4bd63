"""The nightly accepts by case: what it leaves out is named in its summary, and nothing counts as lost."""

from comparison.made_nights import CASES, case_record, metric, stack

from pytest_npubench.nightly.accepting import accept_waiting
from pytest_npubench.store.journal import JournalWriter, read_journal


def test_a_case_whose_test_failed_after_measuring_is_named(tmp_path):
    path, fingerprint = tmp_path / "journal.jsonl", stack()
    with JournalWriter.open(path, host=fingerprint.host, settings={}) as journal:
        digest = journal.device(fingerprint)
        for case, outcome, reason in ((CASES[0], "passed", None), (CASES[1], "failed", "failed (assert 3 == 4)")):
            journal.append(case_record(digest, case, {"tbt_s": metric([1.0])}))
            about = {"case": case, "device": "cuda:0", "outcome": outcome, "reason": reason}
            journal.append({"record": "outcome", **about})
        journal.append({"record": "end", "exit_status": 1, "counts": {}})
    (night,) = accept_waiting(read_journal(path), (), tmp_path / "baselines")
    assert (night.num_judgeable, night.num_accepted, night.lost, night.is_settled) == (1, 1, (), True)
    assert night.said.endswith(f"left out: {CASES[1]} was measured by a test that failed (assert 3 == 4)")

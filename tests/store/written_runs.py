"""Runs that are written into a journal, a session each, and accepted into baselines."""

from pathlib import Path

from accepted_results import CASE

from pytest_npubench.errors import RunNotAcceptedError
from pytest_npubench.store.accept_run import AcceptedRun, accept_run
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.journal import JournalWriter, read_journal
from pytest_npubench.store.journal_runs import chosen_sessions

END = {"record": "end", "exit_status": 0, "counts": {}}
RED = {**END, "exit_status": 1}


def metric(*samples, **about):
    return {"unit": "s", "value": 7.0, "better": "lower", "samples": list(samples), **about}


def case(key=CASE, *, kind="passed", metrics=None, **about):
    """A case's record but for its fingerprint, which is the run's."""
    return {
        "record": "case",
        "case": key,
        "id": key.split("/", 2)[2],
        "hardware": "h200",
        "digest": "d1",
        "device": "cuda:0",
        "verdict": {"kind": kind, "reason": f"it is {kind}"},
        "metrics": {"tbt_s": metric(0.5, 0.25)} if metrics is None else metrics,
        **about,
    }


def timed(tbt_s, kind="passed", *, since=None, **about):
    """A case of one time, `kind` against 10 ms."""
    verdict = {"kind": kind, "reason": f"it is {kind}", "ratio": tbt_s / 0.01, "since": since}
    told = {} if kind == "passed" else {"verdict": verdict}
    return case(kind=kind, metrics={"tbt_s": metric(tbt_s, tbt_s, **told)}, **about)


def outcome(record, did="passed", reason=None):
    """What became of the test that measured the case of this record."""
    about = {name: record[name] for name in ("case", "device")}
    return {"record": "outcome", **about, "outcome": did, "reason": reason}


class WrittenRuns:
    """A journal, and the baselines that its runs are accepted into."""

    def __init__(self, folder: Path, fingerprint: Fingerprint):
        self.path, self.directory = folder / "journal.jsonl", folder / "new" / "baselines"
        self.fingerprint = fingerprint

    def open(self, worker=None, run=None):
        return JournalWriter.open(self.path, host=self.fingerprint.host, settings={}, worker=worker, run=run)

    def append(self, journal, *cases, fingerprint=None):
        """Cases whose tests passed on the device of a fingerprint."""
        digest = journal.device(fingerprint or self.fingerprint)
        for record in cases:
            journal.append({"fingerprint": digest, **record})
            journal.append(outcome(record))

    def write(self, *cases, end=END):
        """A run of one session, green unless `end` says otherwise. Returns the session's name."""
        with self.open() as journal:
            self.append(journal, *cases)
            if end:
                journal.append(end)
            return journal.session

    def accept(self, wanted=None, **about) -> AcceptedRun:
        journal = read_journal(self.path)
        return accept_run(journal, chosen_sessions(journal, wanted), self.directory, **about)

    def accept_each(self, *cases):
        """Runs of one case, each accepted before the next is written."""
        for record in cases:
            self.write(record)
            self.accept()

    def left_out(self, **about):
        """The reason by case, or by "" where the run is refused as a whole."""
        try:
            return {case.case: case.reason for case in self.accept(**about).left_out}
        except RunNotAcceptedError as error:
            return {"": str(error)}

    @property
    def files(self):
        return Baselines.load(self.directory).files

    def samples(self, case=CASE, metric="tbt_s", key=None):
        """The accepted ones by session and process."""
        key = key or self.fingerprint.key()
        return Baselines.load(self.directory).sessions(case, metric, key, digest="d1")

    def sessions(self, case=CASE):
        return [session for file in self.files if case in file.cases for session in file.cases[case].sessions]

"""Results to accept, made up for the baseline tests."""

from datetime import datetime, timedelta, timezone

from pytest_npubench.store.baselines import Baselines, CaseResult, MetricResult

CASE = "buckets/profile/cpu-tiny-b4-bucket128"
OTHER = "buckets/profile/cpu-tiny-b4-bucket256"


def result(*processes, case=CASE, digest="d1", name="tbt_s", unit="s", better="lower", hardware="cpu"):
    metric = MetricResult(name=name, unit=unit, better=better, processes=processes or ((0.5, 0.25),))
    return CaseResult(hardware=hardware, case=case, digest=digest, metrics=(metric,))


def accepted_at(day):
    """Noon of a day counted from the first of January 2026."""
    return (datetime(2026, 1, 1, 12, tzinfo=timezone.utc) + timedelta(days=day)).isoformat()


def accept(directory, key, *results, session, day=0):
    """Accept `results` on a day; returns the files changed."""
    return Baselines(directory=directory, files=()).accept(
        results, session=session, key=key, accepted_at=accepted_at(day)
    )


def values(found):
    """The first sample of each session, where a test made sessions of one process and sample."""
    return [session[0][0] for session in found]


def anchor_sessions(baselines, case, metric, key, *, digest):
    """Of `Baselines.sessions` those that are the fixed anchor."""
    sessions = [session for one in baselines.histories(case, key, digest=digest) for session in one]
    found = [session.metrics[metric].processes for session in sessions if session.anchor and metric in session.metrics]
    return [[list(samples) for samples in processes] for processes in found]

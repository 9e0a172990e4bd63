"""Case records of a journal, typed: what a kind said comes back as the kind's own class, or is told as unread."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from made_records import judged_case

from pytest_npubench.core.case import Case
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.case_record import Cases
from pytest_npubench.verdict.result import JudgedCase, Judgement, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    times_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    num_trips: int
    rows: tuple[Row, ...]
    ratio: float | None = None


details = st.builds(
    Detail,
    num_trips=st.integers(0, 9),
    rows=st.lists(st.builds(Row, name=st.text(), times_s=st.lists(st.floats(0, 9)).map(tuple))).map(tuple),
    ratio=st.none() | st.floats(0, 9),
)
CASE = Case(suite="pings", kind="trip", hardware="cpu", family="cpu", model="tiny", batch_size=2, axes=(("hops", 3),))


def judged(judgement: Judgement) -> JudgedCase:
    return judged_case(CASE, judgement, fingerprint="f", limits={"error": 0.1}, campaign="cpu-pings")


PASSED = Judgement(
    verdict=Verdict(kind=VerdictKind.PASSED, reason="all well"),
    what="a trip",
    metrics=(Metric(name="trip_s", unit="s", value=0.5, samples=(0.4, 0.6)),),
    measured_s=0.5,
    work={"steps": 33.0},
)


@given(details)
def test_a_detail_comes_back_in_its_class(detail: Detail) -> None:
    (record,) = Cases.read([judged(replace(PASSED, detail=detail, engine="vllm")).to_json()]).of("trip", Detail)
    assert record.detail == detail
    assert (record.suite, record.kind, record.id, record.axis("hops")) == ("pings", "trip", "cpu-tiny-b2-hops3", "3")
    assert (record.hardware, record.model, record.batch_size, record.device) == ("cpu", "tiny", 2, "cpu:0")
    assert (record.campaign, record.limits, record.fingerprint) == ("cpu-pings", {"error": 0.1}, "f")
    assert record.judgement.engine == "vllm"
    assert replace(record.judgement, detail={}, engine=None) == PASSED
    assert record.metric("trip_s") == PASSED.metrics[0]
    assert record.metric("other") is None


def test_a_case_without_a_detail_is_in_no_kind() -> None:
    cases = Cases.read([judged(PASSED).to_json()])
    assert cases.of("trip", Detail) == []
    assert cases.unread == []
    assert len(cases.records) == 1


def test_a_detail_that_lacks_a_field_is_told() -> None:
    cases = Cases.read([judged(replace(PASSED, detail={"num_trips": 1})).to_json()])
    assert cases.of("trip", Detail) == []
    (said,) = cases.unread
    assert said.startswith("cpu-tiny-b2-hops3 is not shown")
    assert "rows" in said


def test_what_a_record_need_not_have() -> None:
    """Journals of the first version have no campaign, and other writers leave out more."""
    record = {
        "case": "odd",
        "id": "odd",
        "hardware": "cpu",
        "fingerprint": None,
        "digest": "0",
        "verdict": {"kind": "invalid", "reason": "no device"},
    }
    (found,) = Cases.read([record]).records
    assert (found.suite, found.kind, found.what, found.model, found.batch_size) == ("", "", "", "", 0)
    assert found.judgement.verdict.kind is VerdictKind.INVALID


def test_a_case_of_a_file_is_the_same_on_every_machine() -> None:
    """Of a trace's absolute path its name is in id, key and digest; what opens it still has the path."""
    here, there, other = (
        replace(CASE, axes=(("workload", path), ("hops", 3))) for path in ("/home/mine.jsonl", "/b/mine.jsonl", "/b/x")
    )
    assert here.id == there.id == "cpu-tiny-b2-mine.jsonl-hops3"
    assert here.digest() == there.digest() != other.digest()
    assert here.axis("workload") == "/home/mine.jsonl"
    assert replace(CASE, axes=(("workload", "azure-conv-sample"),)).id == "cpu-tiny-b2-azure-conv-sample"

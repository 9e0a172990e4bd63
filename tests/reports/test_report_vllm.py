"""What a report and the end of a run say of vLLM: no buckets where none are declared, policies and their settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_records import judged_record

from pytest_npubench.reports.plot_parts import Shape
from pytest_npubench.store.journal import Journal, read_journal
from pytest_npubench.suites.buckets.kinds.canary import CanaryDetail
from pytest_npubench.suites.buckets.kinds.steps import StepsDetail
from pytest_npubench.suites.buckets.profile_detail import ProfileDetail
from pytest_npubench.suites.buckets.profile_source import profile_from_journal
from pytest_npubench.suites.buckets.report.profile import host_lines
from pytest_npubench.suites.buckets.report.section import continuous_lines
from pytest_npubench.suites.scheduling.kinds.identical_tokens import IdenticalTokensDetail
from pytest_npubench.suites.scheduling.report.section import lines, parts
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.case_record import Cases
from pytest_npubench.verdict.result import Judgement

from .journals import BUCKETS, TBT_S, TTFT_S, Measurement, make_plan, measure, write_run
from .page import cases_of, figures, page_of
from .served import LOADS, case_record, policy_detail, policy_record, ratios

SAID = "vLLM on cuda:0 has no buckets: latency is continuous; LENS's error here is "


def journal_of(path: Path, measurement: Measurement) -> Journal:
    write_run(path / "journal.jsonl", measurement)
    return read_journal(path / "journal.jsonl")


@pytest.fixture
def measurement() -> Measurement:
    """The table's times on a vLLM that declares nothing."""
    return measure(replace(make_plan(), engine="vllm"))


def with_declared(measurement: Measurement) -> Measurement:
    rounds = [
        {**row, **{f"{name}/declared": tuple(map(float, BUCKETS)) * len(row[name]) for name in row}}
        for row in measurement.measured.rounds
    ]
    return replace(measurement, measured=replace(measurement.measured, rounds=rounds))


def test_a_section_says_that_latency_is_continuous(tmp_path: Path, measurement: Measurement) -> None:
    journal = journal_of(tmp_path, measurement)
    page = page_of(cases_of(journal), journal)
    assert SAID in page.text
    assert "stairs found behind 128, 256)" in page.text  # the table is one
    charts = figures(page)
    assert "prefill padding, %" not in page.text
    (crosses,) = [trace for trace in charts["Latency steps by length"].series if trace.shape is Shape.MARKS]
    assert crosses.x == [129, 257]
    assert "Drift from round to round" in charts  # its rounds are found by another key than the reference engine's


def test_declared_buckets_are_no_drift_and_no_slope(tmp_path: Path, measurement: Measurement) -> None:
    journal = journal_of(tmp_path, with_declared(measurement))
    page = page_of(cases_of(journal), journal)
    assert "latency is continuous" not in page.text
    assert "prefill padding, %" in page.text
    assert len(figures(page)["Drift from round to round"].series) == len(measurement.points) + 1  # and the median


def case(kind: str, device: str, detail: object, measured_s: float | None = None) -> dict[str, object]:
    verdict = Verdict(kind=VerdictKind.PASSED, reason="")
    judgement = Judgement(verdict=verdict, detail=detail, engine="vllm", measured_s=measured_s)
    return judged_record(make_plan().case("buckets", kind, (("bucket", 128),)), judgement, device=device)


def test_each_device_has_its_line_and_one_that_was_not_judged_says_so() -> None:
    timed = ProfileDetail(bucket=128, ttft_s=0.1, tbt_s=0.01, continuous=True)
    seen = StepsDetail(bucket=128, lengths_s={}, continuous=True)
    profile, steps = case("profile", "cpu:0", timed), case("steps", "cuda:1", seen)
    said = "has no buckets: latency is continuous; LENS was not judged here"

    def told(*records: dict[str, object]) -> list[str]:
        return continuous_lines(Cases.read(records))

    assert told(profile, steps) == [f"vLLM on cpu:0 {said}", f"vLLM on cuda:1 {said} (no stair found)"]
    unclear = case("steps", "cuda:1", replace(seen, inconclusive=(127, 128)))
    assert told(steps, unclear) == [f"vLLM on cuda:1 {said} (no stair found, 1 of 2 boundaries unclear)"]
    assert told(case("profile", "cpu:0", replace(timed, continuous=False)), case("canary", "cpu:0", {})) == []


def test_the_hosts_share_of_a_step_is_told_by_the_dispatch_canary() -> None:
    """A launch of 0.1 ms is 1 % of a step of 10 ms; on another device there is none."""
    steps = [ProfileDetail(bucket=bucket, ttft_s=0.1, tbt_s=0.01 * bucket / 128) for bucket in (256, 128)]
    canaries = [case("canary", "cpu:0", CanaryDetail(kernel=kernel), 1e-4) for kernel in ("matmul", "dispatch")]
    profiles = [case("profile", device, detail) for device in ("cpu:0", "cuda:1") for detail in steps]
    (line,) = host_lines(Cases.read([*profiles, *canaries]))
    shares = "1.0 % in bucket 128, 0.5 % in bucket 256 (tiny-llama, batch 1)"
    assert line == f"the host's share of TBT_b, by the dispatch canary (100 µs): {shares}"
    assert host_lines(Cases.read([*profiles, canaries[0]])) == []


def test_a_profile_is_read_from_the_rounds_of_such_a_campaign(tmp_path: Path, measurement: Measurement) -> None:
    journal = journal_of(tmp_path, with_declared(measurement))
    found = profile_from_journal(journal, "cpu-tiny-llama-b1-vllm").profile
    assert {bucket: timing.ttft_s for bucket, timing in found.buckets.items()} == pytest.approx(TTFT_S)
    assert {bucket: timing.tbt_s for bucket, timing in found.buckets.items()} == pytest.approx(TBT_S)


TOKENS = IdenticalTokensDetail(
    rate_per_s=1.46, num_blocks=3, num_requests=24, dtype="fp32", is_judged=True, round_and_request={"layered": ()}
)
IDENTICAL = "tokens of 24 requests under layered against chunked: identical"


def test_the_comparison_says_whose_it_is_and_what_was_attained():
    measured = ratios(expert_load_ratio=0.32, ttft_ratio=0.6)
    attained = replace(LOADS, slo_attainment={"layered": 0.96, "chunked": 0.833})
    (line,) = lines(Cases.read([case_record("expert_loads", attained, metrics=measured, engine="vllm")]))
    assert line.startswith(
        "layered / chunked: expert bytes -68 %, mean TTFT -40 %, SLO attainment 96 % against 83 %, at"
    )
    assert line.endswith("small-moe, geometric mean of 3 blocks, vLLM)")
    (ours,) = lines(Cases.read([case_record("expert_loads", LOADS, metrics=measured)]))
    assert "vLLM" not in ours
    assert "attainment" not in ours


def test_tokens_follow_the_comparisons():
    tokens = case_record("identical_tokens", TOKENS, what=IDENTICAL)
    loads = case_record("expert_loads", LOADS, metrics=ratios(expert_load_ratio=0.5))
    _, line = lines(Cases.read([tokens, loads]))
    assert line == f"{IDENTICAL} (layered-arxiv-div32, small-moe, 3 blocks)"
    assert lines(Cases.read([case_record("identical_tokens", what="")])) == []  # it was not measured


def test_settings_of_each_policy_once():
    records = [
        policy_record("chunked", detail=replace(policy_detail("chunked"), engine_settings=settings), engine="vllm")
        for settings in ("chunked: max_num_seqs=32", "layered: max_num_seqs=32", "chunked: max_num_seqs=32", None)
    ]
    _, _, remarks = parts(Cases.read(records), ())
    assert remarks == (
        "Settings of vLLM, chunked: max_num_seqs=32.",
        "Settings of vLLM, layered: max_num_seqs=32.",
    )

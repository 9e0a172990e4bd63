"""What the end of a run says of policies on vLLM: whose comparison it is, attainment, tokens, settings."""

from __future__ import annotations

from dataclasses import replace

from pytest_npubench.suites.scheduling.kinds.identical_tokens import IdenticalTokensDetail
from pytest_npubench.suites.scheduling.report.section import lines, parts
from pytest_npubench.verdict.case_record import Cases

from .served import LOADS, case_record, policy_detail, policy_record, ratios

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
    assert line.endswith("small-moe, 3 blocks, vLLM)")
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

"""What the end of a run says of policies on vLLM: whose comparison it is, attainment, tokens, settings."""

from __future__ import annotations

from typing import Any

from pytest_npubench.suites.scheduling.report.lines import comparison_lines, vllm_policy_lines


def case(kind: str, **fields: Any) -> dict[str, Any]:
    detail = {"num_blocks": 3, "rate_per_s": 1.46, "engine": "vllm", **fields.pop("detail", {})}
    name = f"scheduling/{kind}/cpu-small-moe-b32-layered-arxiv-div32-u0.7"
    return {"case": name, "hardware": "cpu", "model": "small-moe", "device": "cpu:0", "detail": detail, **fields}


def test_the_comparison_says_whose_it_is_and_what_was_attained():
    record = case(
        "expert_loads",
        metrics={"expert_load_ratio": {"value": 0.32}, "ttft_ratio": {"value": 0.6}},
        detail={"slo_attainment": {"layered": 0.96, "chunked": 0.833}},
    )
    (line,) = comparison_lines([record])
    assert line.startswith(
        "layered / chunked: expert bytes -68 %, mean TTFT -40 %, SLO attainment 96 % against 83 %, at"
    )
    assert line.endswith("small-moe, 3 blocks, vLLM)")
    (ours,) = comparison_lines([{**record, "detail": {"num_blocks": 3}}])
    assert "vLLM" not in ours
    assert "attainment" not in ours


def test_tokens_follow_the_comparisons():
    tokens = case("identical_tokens", what="tokens of 24 requests under layered against chunked: identical")
    loads = case("expert_loads", metrics={"expert_load_ratio": {"value": 0.5}})
    _, line = comparison_lines([tokens, loads])
    assert line.startswith("tokens of 24 requests under layered against chunked: identical (")
    assert comparison_lines([{**tokens, "what": ""}]) == []  # it was not measured


def test_settings_of_each_policy_once():
    records = [
        case("policy", detail={"vllm": settings})
        for settings in ("chunked: max_num_seqs=32", "layered: max_num_seqs=32", "chunked: max_num_seqs=32")
    ]
    assert vllm_policy_lines([*records, case("policy"), case("timeline", detail={"vllm": "other"})]) == [
        "Settings of vLLM, chunked: max_num_seqs=32",
        "Settings of vLLM, layered: max_num_seqs=32",
    ]

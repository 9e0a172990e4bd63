"""From arrivals to metrics: a load served on the virtual clock, every metric against its closed form made by hand.

Continuous batching of at most 2 requests; an iteration takes 1 s and half a second a prompt token, and is over at 20 s:

    request  arrives  prompt  output  tokens at          iteration       prefill  decode      KV tokens held
    0        0        4       3       3, 5, 6            1:   0 to  3    0                    4
    1        1        2       2       5, 6               2:   3 to  5    1        0           5 + 2
    2        10       2       1       12                 3:   5 to  6             0, 1        6 + 3
    3        14       6       5       19, 20             4:  10 to 12    2                    2
    4        14       2       4       19, 20             5:  14 to 19    3, 4                 6 + 2
    5        17       3       2       none: it waits     6:  19 to 20             3, 4        7 + 3
"""

from __future__ import annotations

import math
from collections import Counter

import pytest

from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.metrics import Slo, summarize
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.serving.schedulers import make_scheduler

from .runs import requests

LOAD = requests((0, 4, 3), (1, 2, 2), (10, 2, 1), (14, 6, 5), (14, 2, 4), (17, 3, 2))
SLO = Slo(ttft_s=4.0, tbt_s=1.5)
TOKENS_S = [(3, 5, 6), (5, 6), (12,), (19, 20), (19, 20), ()]
DURATIONS_S = [3, 2, 1, 2, 5, 1]
NUM_TOKENS = [4, 3, 2, 2, 8, 2]  # prompt and decode tokens of each iteration


class KnownExecutor:
    """One layer, no tensors. Each token activates 2 of 16 experts of its own of 100 bytes, holds 10 bytes of keys and
    values, and a second costs 2 J."""

    num_layers, kv_capacity_tokens, block_size_tokens = 1, 400, 4

    def __init__(self) -> None:
        self.held: Counter[int] = Counter()

    def begin(self, request: int, prompt_tokens: int, output_tokens: int) -> None:
        self.held[request] = 0

    def end(self, request: int) -> None:
        del self.held[request]

    def run(self, plan: IterationPlan) -> IterationOutcome:
        self.held.update(plan.decode)
        for layers in plan.passes:
            for row in layers.prefill:
                self.held[row.request] += row.num_tokens
        num_prefill = plan.num_prefill_tokens
        activations = 2 * (num_prefill + len(plan.decode))
        duration_s = 1 + 0.5 * num_prefill
        return IterationOutcome(
            duration_s=duration_s,
            tokens=dict.fromkeys((*plan.decode, *plan.finishing), 7),
            expert_activations=activations,
            padded_expert_activations=activations,
            expert_load_bytes=100 * activations,
            kv_bytes=10 * self.held.total(),
            energy_j=2 * duration_s,
        )


@pytest.fixture(scope="module")
def result() -> ServingResult:
    scheduler = make_scheduler("continuous", num_layers=1, kv_blocks=100, block_size_tokens=4, max_batch_size=2)
    return serve(OpenLoad(LOAD), scheduler, KnownExecutor(), VirtualClock(), until_s=20.0)


EXPECTED = {
    # TTFT 3, 4, 2, 5, 5
    "ttft_mean_s": 19 / 5,
    "ttft_p50_s": 4.0,
    "ttft_p90_s": 5.0,
    "ttft_p95_s": 5.0,
    "ttft_p99_s": 5.0,
    # gaps 2, 1 | 1 | | 1 | 1
    "tbt_mean_s": 6 / 5,
    "tbt_p50_s": 1.0,
    "tbt_p99_s": 2.0,
    "tbt_std_pooled_s": math.sqrt((0.8**2 + 4 * 0.2**2) / 4),
    "tbt_std_per_request_s": math.sqrt(0.5),  # of the one request with two gaps
    # of the finished ones: 3 s over 2 gaps, 1 s over 1
    "tpot_mean_s": (1.5 + 1.0) / 2,
    "e2e_mean_s": (6 + 5 + 2) / 3,
    "queue_delay_mean_s": 2 / 5,  # request 1 alone waited among those that began
    "dispatch_lag_mean_s": (2 + 2) / 6,  # requests 1 and 5 came within an iteration
    # request 0 has a gap of 2 s, 3 and 4 are late and unfinished, 5 has nothing: 1 and 2 attain
    "slo_attainment": 2 / 6,
    "ttft_attainment": 3 / 6,
    "tbt_attainment": 2 / 6,
    "output_tokens_per_s": 10 / 20,
    "goodput_requests_per_s": 2 / 20,
    # tokens a second after the first: 2/3, 1, 1, 1
    "jain_index": (2 / 3 + 3) ** 2 / (4 * ((2 / 3) ** 2 + 3)),
    "mean_decode_batch_size": (1 + 2 + 2) / 3,
    "expert_activations": 2 * 21,
    "expert_load_bytes": 200 * 21,
    "expert_load_bytes_per_request": 200 * 21 / 3,
    "expert_coverage": 2 * 21 / (16 * 6),
    "expert_coverage_decode_only": 2 * (2 + 2) / (16 * 2),
    "expert_coverage_with_prefill": 2 * (4 + 3 + 2 + 8) / (16 * 4),
    "kv_bytes_max": 100,
    "kv_bytes_mean": (40 * 3 + 70 * 2 + 90 * 1 + 20 * 2 + 80 * 5 + 100 * 1) / 14,
    "hidden_bytes_max": 0,
    # 28 J; 16 prompt tokens have led to a first token
    "energy_mj_per_prompt_and_output_token": 28_000 / (16 + 10),
    "energy_mj_per_output_token": 28_000 / 10,
    "num_arrived": 6,
    "num_finished": 3,
    "num_aborted": 0,
    "num_preemptions": 0,
    "duration_s": 20.0,
    "realised_rate_per_s": 5 / 17,
    # gaps between arrivals 1, 9, 4, 0, 3
    "realised_cv": math.sqrt((2.4**2 + 5.6**2 + 0.6**2 + 3.4**2 + 0.4**2) / 4) / 3.4,
}


def test_the_run_is_the_one_above(result: ServingResult) -> None:
    assert [record.token_times_s for record in result.records] == TOKENS_S
    assert [record.dispatched_s for record in result.records] == [0, 3, 10, 14, 14, 19]
    assert [record.scheduled_s for record in result.records] == [0, 3, 10, 14, 14, None]
    lasted = [end - start for start, end in zip(result.log.start_s, result.log.end_s, strict=True)]
    assert lasted == DURATIONS_S
    assert list(result.log.expert_activations) == [2 * tokens for tokens in NUM_TOKENS]
    assert (result.started_s, result.ended_s, result.clock) == (0.0, 20.0, "virtual")


@pytest.mark.parametrize("name", EXPECTED)
def test_each_metric_is_its_closed_form(result: ServingResult, name: str) -> None:
    found = {metric.name: metric for metric in summarize(result, SLO, num_experts=16)}
    assert found[name].value == pytest.approx(EXPECTED[name], rel=1e-12)


def test_what_a_value_leaves_out_is_counted(result: ServingResult) -> None:
    found = {metric.name: metric for metric in summarize(result, SLO, num_experts=16)}
    assert found["ttft_mean_s"].note == "1 of 6 arrived requests are not counted: no token"
    assert found["e2e_mean_s"].note == "3 of 6 arrived requests are not counted: not finished"
    assert (found["ttft_mean_s"].num_samples, found["tbt_mean_s"].num_samples) == (5, 5)


def test_a_device_s_counter_goes_before_the_iterations_own(result: ServingResult) -> None:
    found = {metric.name: metric for metric in summarize(result, SLO, num_experts=16, energy_j=52.0)}
    assert found["energy_mj_per_prompt_and_output_token"].value == pytest.approx(2000.0)


def test_preemptions_and_chunks_change_times_and_never_the_tokens() -> None:
    """Three KV blocks of 4 for two requests of 4 + 8: one of them must make room, and is prefilled again."""
    scheduler = make_scheduler("chunked", num_layers=1, kv_blocks=3, block_size_tokens=4, chunk_size_tokens=4)
    run = serve(OpenLoad(requests((0, 4, 8), (0, 4, 8))), scheduler, KnownExecutor(), VirtualClock())
    found = {metric.name: metric.value for metric in summarize(run, SLO, num_experts=16)}
    assert found["num_preemptions"] == sum(record.num_preemptions for record in run.records) > 0
    assert found["num_finished"] == 2
    assert found["output_tokens_per_s"] == pytest.approx(16 / run.ended_s)
    longest = [record.token_times_s[-1] for record in run.records]
    assert found["e2e_mean_s"] == pytest.approx(sum(longest) / 2)
    num_prefilled = sum(run.log.num_prefill_tokens)
    assert num_prefilled > 8  # what was taken away was made again
    assert run.ended_s == pytest.approx(len(run.log) + 0.5 * num_prefilled)

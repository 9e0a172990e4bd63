"""A server in vLLM's place whose times are known: a function of the prompts of an iteration and of its KV lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from campaign.conftest import TBT_S, TTFT_S, cases

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.rounds import measure_round
from pytest_npubench.core.buckets import bucket_of
from pytest_npubench.extensions.vllm.answer import VllmAnswer, VllmRequest, VllmRun
from pytest_npubench.extensions.vllm.bucket_engine import VllmBucketEngine
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.buckets.bench import BucketBench
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint

Seconds = Callable[[Sequence[int]], float]


class StandInServer:
    """All prompts in one iteration, then steps of the rows that still want tokens."""

    def __init__(self, prefill_s: Seconds, step_s: Seconds) -> None:
        self.prefill_s, self.step_s = prefill_s, step_s
        self.failed: str | None = None
        self.is_closed = False

    def serve(self, requests: Sequence[VllmRequest]) -> VllmRun:
        times_s = [[self.prefill_s([len(request.prompt) for request in requests])] for request in requests]
        at_s = times_s[0][0]
        for step in range(1, max(request.output_tokens for request in requests)):
            rows = [row for row, request in enumerate(requests) if request.output_tokens > step]
            at_s += self.step_s([len(requests[row].prompt) + step for row in rows])
            for row in rows:
                times_s[row].append(at_s)
        answers = tuple(
            VllmAnswer(request=request, token_times_s=tuple(times), failed=self.failed)
            for request, times in zip(requests, times_s, strict=True)
        )
        return VllmRun(answers=answers, iterations=(), ended_s=at_s)

    def load(self, kernel: str) -> None:
        self.time(kernel)

    def time(self, kernel: str) -> float:
        return {"matmul": 0.002, "copy": 0.003, "dispatch": 0.001}[kernel]

    def close(self) -> None:
        self.is_closed = True


def slope(first_s: float, token_s: float, step_s: float, kv_token_s: float) -> StandInServer:
    """No buckets: an iteration has its fixed part, and a part for every token that it prefills or attends to."""
    return StandInServer(
        lambda prompts: first_s + token_s * sum(prompts), lambda lengths: step_s + kv_token_s * sum(lengths)
    )


def stair(buckets: Sequence[int] = (16, 32, 64)) -> StandInServer:
    """Padded: every prompt to its bucket, a step to that of the longest cache; times of conftest.py."""
    return StandInServer(
        lambda prompts: sum(TTFT_S[bucket_of(buckets, prompt)] for prompt in prompts),
        lambda lengths: TBT_S[bucket_of(buckets, max(lengths))],
    )


def make_bench(plan: BucketPlan, server: StandInServer, declared: Sequence[int] = ()) -> BucketBench:
    engine = VllmBucketEngine(
        server,
        vocab_size=64,
        batch_size=plan.batch_size,
        buckets=plan.buckets,
        declared=declared,
        canaries=server,
    )
    return BucketBench(None, plan, lambda runtime, plan: engine)  # type: ignore[arg-type, return-value]


def points_of(plan: BucketPlan, kinds: Sequence[str]) -> tuple[BucketPoint, ...]:
    found = [point for name in kinds for case in cases(plan, name) for point in case_kind(name).points(case, plan)]
    return tuple(dict.fromkeys(found))


def measure(
    plan: BucketPlan,
    server: StandInServer,
    kinds: Sequence[str] = ("prediction", "mean_error", "profile", "steps", "canary"),
    declared: Sequence[int] = (),
    num_rounds: int = 3,
) -> Measured:
    """As a campaign does: load, then rounds of the points that did not fail."""
    bench, points = make_bench(plan, server, declared), points_of(plan, kinds)
    failures = dict(bench.load(points, (), lambda text: None))
    good = [point for point in points if point.name not in failures]
    rounds = [one_visit_each(bench, good, index) for index in range(num_rounds)]
    bench.close()
    return Measured(rounds=list(rounds), failures=failures)


def one_visit_each(bench: BucketBench, points: Sequence[BucketPoint], seed: int) -> dict[str, tuple[float, ...]]:
    """A round in which every point takes so long that it is visited once."""
    durations_s = {point.name: 1e3 for point in points}
    found, failures, _ = measure_round(points, durations_s, bench.sample, seed, lambda: None)
    assert failures == {}
    return found

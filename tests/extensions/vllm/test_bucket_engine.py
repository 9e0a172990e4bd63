"""A batch's times as segments in buckets, by hand; the server is the tests' own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_npubench.core.measurement import Phase, Request
from pytest_npubench.errors import ConfigError, LengthError, MeasurementError
from pytest_npubench.extensions.vllm.answer import VllmAnswer, VllmRequest, VllmRun
from pytest_npubench.extensions.vllm.bucket_engine import VllmBucketEngine, as_run
from pytest_npubench.predictors.two_point import check_pure


class FakeServer:
    """A first token after one second, another each tenth of a second."""

    def __init__(self, failed: str | None = None) -> None:
        self.asked: list[Sequence[VllmRequest]] = []
        self._failed = failed

    def serve(self, requests: Sequence[VllmRequest]) -> VllmRun:
        self.asked.append(requests)
        answers = tuple(
            answer(len(request.prompt), *(1 + step / 10 for step in range(request.output_tokens)), failed=self._failed)
            for request in requests
        )
        return VllmRun(answers=answers, iterations=(), ended_s=9.0)


def answer(prompt_tokens: int, *token_times_s: float, failed: str | None = None) -> VllmAnswer:
    request = VllmRequest(id=0, arrival_s=0.0, prompt=(1,) * prompt_tokens, output_tokens=len(token_times_s))
    return VllmAnswer(request=request, token_times_s=token_times_s, failed=failed)


def engine(server: FakeServer, batch_size: int = 2) -> VllmBucketEngine:
    return VllmBucketEngine(server, vocab_size=64, batch_size=batch_size, buckets=(128, 256))


def test_the_worked_example() -> None:
    run = as_run([answer(100, 0.2, 0.25, 0.3), answer(120, 0.2, 0.25, 0.3)], (121, 256))
    found = [(part.phase, part.bucket, part.num_steps) for part in run.segments]
    assert found == [(Phase.PREFILL, 121, 2), (Phase.DECODE, 121, 1), (Phase.DECODE, 256, 1)]
    assert [part.duration_s for part in run.segments] == pytest.approx([0.2, 0.05, 0.05])
    assert run.e2e_s == pytest.approx(0.3)


def test_rows_that_ended_do_not_count() -> None:
    """The long prompt ends first: what is left decodes at its own, shorter, length."""
    run = as_run([answer(200, 0.2), answer(10, 0.2, 0.3)], (128, 256))
    assert [part.bucket for part in run.segments] == [256, 128]


def test_segments_add_up() -> None:
    run = engine(FakeServer()).run(
        [Request(input_tokens=126, output_tokens=7), Request(input_tokens=9, output_tokens=2)]
    )
    assert sum(part.duration_s for part in run.segments) == pytest.approx(run.e2e_s)
    assert sum(part.num_steps for part in run.segments if part.phase is Phase.DECODE) == 6


def test_a_profile_point_stays_in_its_bucket() -> None:
    """128 tokens of KV are in bucket 128, one more is not: as LENS counts them (Eq. 3)."""
    pure = engine(FakeServer()).run([Request(input_tokens=120, output_tokens=9)])
    check_pure(128, pure)
    mixed = engine(FakeServer()).run([Request(input_tokens=120, output_tokens=10)])
    assert [part.bucket for part in mixed.segments] == [128, 128, 256]


def test_prompts_that_were_prefilled_apart() -> None:
    with pytest.raises(MeasurementError, match="2 prompts were prefilled in 2 iterations"):
        as_run([answer(10, 0.1, 0.2), answer(10, 0.2)], (128,))


def test_ids_are_never_used_twice() -> None:
    server = FakeServer()
    used = engine(server)
    for _ in range(3):
        used.run([Request(input_tokens=2, output_tokens=1)] * 2)
    ids = [request.id for requests in server.asked for request in requests]
    assert len(set(ids)) == 6


def test_each_run_has_prompts_of_its_own_and_two_engines_have_the_same() -> None:
    servers = [FakeServer(), FakeServer()]
    for server in servers:
        used = engine(server)
        for _ in range(2):
            used.run([Request(input_tokens=5, output_tokens=1)])
    first, again = [[requests[0].prompt for requests in server.asked] for server in servers]
    assert first == again
    assert first[0] != first[1]


def test_a_failed_request_fails_the_run() -> None:
    with pytest.raises(MeasurementError, match="request 0 of the batch: lost"):
        engine(FakeServer("lost")).run([Request(input_tokens=2, output_tokens=1)])


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ([], "0 requests; the engine takes 1..2"),
        ([(1, 1)] * 3, "3 requests"),
        ([(0, 1)], "request 0: 0 prompt"),
        ([(250, 8)], "257"),
    ],
)
def test_batches_that_do_not_fit(requests: list[tuple[int, int]], reason: str) -> None:
    asked = [Request(input_tokens=prompt, output_tokens=output) for prompt, output in requests]
    with pytest.raises(LengthError, match=reason):
        engine(FakeServer()).run(asked)


def test_nothing_moves() -> None:
    with pytest.raises(ConfigError, match="paged and never moves"):
        engine(FakeServer()).time_move(128, 256)


def test_a_bucket_that_is_not_one() -> None:
    with pytest.raises(LengthError, match="bucket 64"):
        engine(FakeServer()).load((64,))

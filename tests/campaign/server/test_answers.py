"""A server's answers from the bench to the verdict: one that repeats itself, and servers that must not pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install pytest-npubench[http]")

from aiohttp import web

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.rounds import measure_round
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.server.bench import ServerBench
from pytest_npubench.verdict import VerdictKind

from .conftest import server_plan
from .stand_in import Fault, StandIn

KIND = case_kind("answers", ("server",))
Token = tuple[str, float]


def model(prompt: Any, number: int) -> list[Token]:
    """As greedy decoding does, this hangs on the prompt alone."""
    draw = Random(str(prompt))
    return [(f" {draw.randrange(100)}", -draw.random()) for _ in range(16)]


def says(answer: Callable[[Any, int], list[Token]], tells: bool = True) -> Fault:
    """A server of either API; one that does not tell log-probabilities refuses a request for them."""

    async def fault(number: int, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if "logprobs" in body and not tells:
            return web.Response(status=400, text="logprobs are not supported")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        chat = "messages" in body
        for text, logprob in answer(body["messages"] if chat else body["prompt"], number):
            told = {"content": [{"token": text, "logprob": logprob}]} if chat else {"token_logprobs": [logprob]}
            choice = {"delta": {"content": text}} if chat else {"text": text}
            event = {"choices": [{**choice, **({"logprobs": told} if "logprobs" in body else {})}]}
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    return fault


def judged(runtime: Any, stand_in: StandIn, **asking: Any) -> Any:
    plan = server_plan(**asking)
    (case,) = (plan.case("server", "answers", axes) for axes in KIND.axes(plan))
    points = KIND.points(case, plan)
    bench = ServerBench(runtime(stand_in), plan)
    assert bench.load(points, (), lambda text: None) == {}
    row, failed, _ = measure_round(points, {"answers": 1.0}, bench.sample, 0, lambda: None)
    measured = Measured(rounds=[json.loads(json.dumps(row))], failures=failed)
    assert not row or bench.visits(points, measured, {}) == {"answers": 0}
    return KIND.judge(case, plan, measured)


@pytest.mark.parametrize("asking", [{}, {"api": "chat", "extra_body": {}}], ids=["completions", "chat"])
def test_a_server_that_repeats_itself_is_kept_by_its_log_probabilities(runtime, asking):
    stand_in = StandIn(fault=says(model))
    found = judged(runtime, stand_in, **asking)
    assert found.verdict.kind is VerdictKind.PASSED
    assert found.verdict.reason.startswith("consistent, not compared: ")
    (metric,) = found.metrics
    assert (metric.name, metric.gate, metric.margin, len(metric.samples)) == ("answer_change", "answers", 0.1, 96)
    first = stand_in.bodies[0].get("messages") or stand_in.bodies[0]["prompt"]
    assert metric.samples[:16] == pytest.approx([logprob for _, logprob in model(first, 0)], rel=1e-5)
    assert {body["temperature"] for body in stand_in.bodies} == {0.0}


def test_without_log_probabilities_it_is_kept_by_its_text(runtime):
    found = judged(runtime, StandIn(fault=says(model, tells=False)))
    assert found.verdict.kind is VerdictKind.PASSED
    assert [(metric.name, metric.gate) for metric in found.metrics] == [("answer_text", "identical")]
    other = judged(runtime, StandIn(fault=says(lambda prompt, number: model((prompt, 1), 0), tells=False)))
    assert other.metrics[0].value != found.metrics[0].value


def noisy(spread: float) -> Callable[[Any, int], list[Token]]:
    def answer(prompt: Any, number: int) -> list[Token]:
        draw = Random(number)
        return [(text, min(0.0, logprob + draw.gauss(0, spread))) for text, logprob in model(prompt, 0)]

    return answer


def test_what_a_server_does_to_itself_is_the_measure(runtime):
    found = judged(runtime, StandIn(fault=says(noisy(0.03))))
    assert found.verdict.kind is VerdictKind.PASSED
    assert 0.1 < found.metrics[0].margin < 0.5


NOT_JUDGED = {
    "noise": (noisy(1.0), True),
    "garbage": (lambda prompt, number: model(number, 0), True),
    "garbage without log-probabilities": (lambda prompt, number: model(number, 0), False),
}


@pytest.mark.parametrize(("answer", "tells"), NOT_JUDGED.values(), ids=NOT_JUDGED)
def test_a_server_that_does_not_repeat_itself_is_never_called_right(runtime, answer, tells):
    found = judged(runtime, StandIn(fault=says(answer, tells)))
    assert found.verdict.kind is VerdictKind.INCONCLUSIVE
    assert found.verdict.reason.startswith("not compared: the server ")
    assert found.metrics == ()


@pytest.mark.parametrize("tells", [True, False])
def test_a_server_that_says_the_same_to_everybody_fails(runtime, tells):
    """So does the known-answer server, which generates nothing."""
    for stand_in in (StandIn(fault=says(lambda prompt, number: model(0, 0), tells)), StandIn()):
        found = judged(runtime, stand_in)
        assert found.verdict.kind is VerdictKind.FAILED
        assert "answers are the same whatever is asked" in found.verdict.reason


BROKEN = {
    "no log-probability": (lambda prompt, number: [("a", 0.5)], "a log-probability is 0.5; want"),
    "nothing": (lambda prompt, number: [], "6 of 6 fixed prompts have an empty answer"),
}


@pytest.mark.parametrize(("answer", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_server_that_tells_what_cannot_be_is_invalid(runtime, answer, reason):
    with pytest.raises(MeasurementError, match=reason):
        judged(runtime, StandIn(fault=says(answer)))

"""The open loop on an engine and a clock of the tests' own: exact times, no vLLM."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.extensions.vllm.answer import NewTokens, Scheduled, VllmRequest, VllmRun
from pytest_npubench.extensions.vllm.serving_run import serve

STARTED_S = 1000.0
STEP_S = 0.5


class Clock:
    """Stands still but for what sleeps and works on it; each look at it takes 20 microseconds."""

    def __init__(self) -> None:
        self.at_s = STARTED_S

    def now_s(self) -> float:
        self.at_s += 20e-6
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds


class FakeEngine:
    """One token a request and iteration, all of them together; an iteration takes half a second."""

    def __init__(self, clock: Clock, *, fails_at: int | None = None) -> None:
        self._clock, self._fails_at = clock, fails_at
        self._left: dict[int, int] = {}
        self._scheduled_at_s: dict[int, float] = {}
        self.num_steps = 0

    @property
    def has_unfinished(self) -> bool:
        return bool(self._left)

    def add(self, request: VllmRequest) -> None:
        if len(request.prompt) > 100:
            raise ConfigError(f"request {request.id}: too long")
        self._left[request.id] = request.output_tokens

    def step(self) -> tuple[NewTokens, ...]:
        self.num_steps += 1
        if self.num_steps == self._fails_at:
            raise MeasurementError("no memory for an iteration")
        for request in self._left:
            self._scheduled_at_s.setdefault(request, self._clock.at_s)
        self._clock.at_s += STEP_S
        given = tuple(self._token(request) for request in self._left)
        self._left = {request: left - 1 for request, left in self._left.items() if left > 1}
        return given

    def _token(self, request: int) -> NewTokens:
        return NewTokens(
            request=request,
            tokens=(self.num_steps,),
            at_s=self._clock.at_s,
            scheduled_at_s=self._scheduled_at_s[request],
            num_preemptions=0,
            finished=self._left[request] == 1,
        )

    def take_scheduled(self) -> Scheduled:
        return Scheduled(
            num_decode=1,
            num_prefill_tokens=0,
            num_prefill_layers=None,
            num_prefill_pairs=0,
            num_running=len(self._left),
            num_waiting=0,
            kv_fraction=0.0,
        )


def run(*arrivals: tuple[float, int], fails_at: int | None = None, prompt_tokens: int = 3) -> VllmRun:
    """Requests of (arrival, output tokens)."""
    clock = Clock()
    requests = [
        VllmRequest(id=index, arrival_s=arrival_s, prompt=(1,) * prompt_tokens, output_tokens=output_tokens)
        for index, (arrival_s, output_tokens) in enumerate(arrivals)
    ]
    engine = FakeEngine(clock, fails_at=fails_at)
    return serve(engine, requests, count_experts=lambda: 7, now_s=clock.now_s, sleep=clock.sleep)


def test_times_start_with_the_run() -> None:
    """Arrivals at 0 and 0.7 s, iterations of half a second: the second waits for the one that ends at 1.0 s."""
    first, second = run((0.0, 3), (0.7, 1)).answers
    assert first.token_times_s == pytest.approx((0.5, 1.0, 1.5), abs=1e-3)
    assert second.dispatched_s == pytest.approx(1.0, abs=1e-3)
    assert second.token_times_s == pytest.approx((1.5,), abs=1e-3)
    assert first.tokens == (1, 2, 3)


def test_it_does_not_wait_for_answers() -> None:
    """Both are under way together though the first has long to go."""
    first, second = run((0.0, 20), (1.1, 2)).answers
    assert second.token_times_s[-1] < first.token_times_s[-1] / 2


def test_idle_time_is_slept_through() -> None:
    answers = run((0.0, 1), (30.0, 1)).answers
    assert answers[1].dispatched_s == pytest.approx(30.0, abs=1e-3)
    assert answers[1].token_times_s == pytest.approx((30.5,), abs=1e-3)


def test_iterations_are_kept_with_their_experts() -> None:
    iterations = run((0.0, 2)).iterations
    assert [item.expert_activations for item in iterations] == [7, 7]
    assert iterations[0].end_s <= iterations[1].start_s


def test_a_request_that_is_refused_fails_alone() -> None:
    clock = Clock()
    requests = [
        VllmRequest(id=0, arrival_s=0.0, prompt=(1,) * 101, output_tokens=2),
        VllmRequest(id=1, arrival_s=0.0, prompt=(1,), output_tokens=2),
    ]
    refused, served = serve(FakeEngine(clock), requests, now_s=clock.now_s, sleep=clock.sleep).answers
    assert refused.failed == "request 0: too long"
    assert refused.token_times_s == ()
    assert served.failed is None


def test_an_engine_that_fails_fails_every_open_request() -> None:
    """The run ends; the one that had all its tokens is whole, the one yet to arrive is failed too."""
    result = run((0.0, 1), (0.0, 5), (60.0, 1), fails_at=3)
    whole, cut, late = result.answers
    assert result.lost == "no memory for an iteration"
    assert (whole.failed, cut.failed, late.failed) == (None, result.lost, result.lost)
    assert len(cut.tokens) == 2
    assert late.dispatched_s is None


@pytest.mark.parametrize(
    ("arrivals", "reason"), [((), "no request"), (((1.0, 1), (0.5, 1)), "not in order of arrival")]
)
def test_loads_that_cannot_be(arrivals: tuple[tuple[float, int], ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        run(*arrivals)


def test_an_id_twice() -> None:
    request = VllmRequest(id=0, arrival_s=0.0, prompt=(1,), output_tokens=1)
    with pytest.raises(ConfigError, match="two requests of one id"):
        serve(FakeEngine(Clock()), [request, request])


@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 6)), min_size=1, max_size=8))
def test_every_request_is_dispatched_at_the_first_end_of_an_iteration(load: list[tuple[float, int]]) -> None:
    """No iteration starts between an arrival and its dispatch, and the lag is below one iteration."""
    result = run(*sorted(load))
    for answer in result.answers:
        arrival_s, dispatched_s = answer.request.arrival_s, answer.dispatched_s
        assert dispatched_s is not None
        assert arrival_s <= dispatched_s <= arrival_s + STEP_S + 0.01
        assert not [item for item in result.iterations if arrival_s + 1e-3 < item.start_s < dispatched_s]
        assert len(answer.token_times_s) == answer.request.output_tokens
        assert answer.scheduled_s is not None
        assert dispatched_s <= answer.scheduled_s <= answer.token_times_s[0]

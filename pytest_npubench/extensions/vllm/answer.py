"""What is asked of a vLLM engine, and what came back. Seconds on a clock that starts with the run (time.monotonic)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmRequest:
    """prompt: token ids. arrival_s: when it is due. scored: tokens whose log-probabilities are told at every position.
    forced: the one token that may follow; None: the most likely one does."""

    id: int
    arrival_s: float
    prompt: tuple[int, ...]
    output_tokens: int
    scored: tuple[int, ...] = ()
    forced: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTokens:
    """What one iteration gave one request, in vLLM's own time points (time.monotonic, not the run's clock).

    scheduled_at_s: when an iteration first took up its prompt. failed: the reason where it ended short of its tokens.
    logprobs: in front of each of `tokens`, of those that the request wants scored.
    """

    request: int
    tokens: tuple[int, ...]
    at_s: float
    scheduled_at_s: float
    num_preemptions: int
    finished: bool
    failed: str | None = None
    logprobs: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """What one call of the engine runs through the layers.

    num_prefill_tokens: prompt tokens scheduled, those of a preempted request again; under layered prefill a prompt's
    tokens in each of its iterations, through num_prefill_layers of the layers (None: all).
    num_prefill_pairs: over these tokens, how many each attends to, as in a serving.log.IterationLog. num_running:
    admitted requests. kv_fraction: of the KV cache's blocks, those in use.
    """

    num_decode: int
    num_prefill_tokens: int
    num_prefill_layers: int | None
    num_prefill_pairs: int
    num_running: int
    num_waiting: int
    kv_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration(Scheduled):
    """One that ran. expert_activations: distinct experts of each layer summed over the layers; None where nothing
    counts them."""

    start_s: float
    end_s: float
    expert_activations: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmAnswer:
    """One request's answer, whole or not.

    dispatched_s: when the engine was given it, so dispatched_s - arrival_s is the dispatch lag: up to one iteration,
    since vLLM takes requests up between iterations. scheduled_s and dispatched_s are None for one that never got there.
    token_times_s: the end of the iteration that gave each token. failed: the reason, None where the answer is whole.
    """

    request: VllmRequest
    dispatched_s: float | None = None
    scheduled_s: float | None = None
    token_times_s: tuple[float, ...] = ()
    tokens: tuple[int, ...] = ()
    num_preemptions: int = 0
    failed: str | None = None
    logprobs: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmRun:
    """answers: one a request, in order of arrival. lost: why the engine ended before the run did, None where not."""

    answers: tuple[VllmAnswer, ...]
    iterations: tuple[Iteration, ...]
    ended_s: float
    lost: str | None = None

    @property
    def dispatch_lags_s(self) -> tuple[float, ...]:
        """Returns the lags of the requests that the engine was given."""
        answers = (answer for answer in self.answers if answer.dispatched_s is not None)
        return tuple((answer.dispatched_s or 0.0) - answer.request.arrival_s for answer in answers)

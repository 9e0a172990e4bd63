"""Sends the requests of a workload to one server: lengths and times are seeded, prompts are new each run."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npubench.backends.server_address import ServerAddress
from pytest_npubench.campaign.served_load import block
from pytest_npubench.engines.http.answer import HttpAnswer, HttpRequest
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.suites.server.failures import by_name, class_of, in_words
from pytest_npubench.suites.server.prompt_file import FilePrompt
from pytest_npubench.suites.server.prompts import Prompts
from pytest_npubench.suites.server.spec import OURS, Asking

if TYPE_CHECKING:
    from pytest_npubench.engines.http.load_run import HttpRun

WORDS_FILL = 7 / 8  # of a context: a word may be two tokens, and a chat template has some of its own
RUN_BYTES = 8
LEAVES_OUT = "leaves it out (load --extra-body)"
HINTS = {
    "max_tokens": "dialect openai asks with max_completion_tokens (load --dialect openai)",
    "continuous_usage_stats": f'extra_body {{"stream_options": {{"include_usage": true}}}} {LEAVES_OUT}',
}


class Loader:
    """One model of one server. Raises ConfigError where it cannot be asked so."""

    def __init__(
        self,
        address: ServerAddress,
        model: str,
        context_tokens: int | None,
        asking: Asking,
        *,
        given: Sequence[FilePrompt] = (),
        shared: tuple[int, float] = (0, 1.0),
    ) -> None:
        """`given` prompts take the place of new ones, again from the first behind the last; of new ones a fraction may
        share so many tokens."""
        self._address, self._given = address, given
        self._prompts = Prompts(
            form=asking.prompt,
            token_ids=asking.token_ids,
            run=os.urandom(RUN_BYTES).hex(),
            shared_tokens=shared[0],
            shared_fraction=shared[1],
        )
        self.endpoint = Endpoint(
            url=address.url,
            model=model,
            api=asking.api,
            api_key_variable=address.key_variable,
            connect_timeout_s=asking.connect_timeout_s,
            idle_timeout_s=asking.idle_timeout_s,
            answer_timeout_s=asking.answer_timeout_s,
            extra_body=asking.fields,
            query=address.query,
            headers=address.headers,
            ca_file=address.ca_file,
        )
        self.max_total_tokens = _room(asking, context_tokens)

    def requests(
        self, workload: str, num_requests: int, rate_per_s: float, round_index: int
    ) -> tuple[ServingRequest, ...]:
        """Poisson arrivals, the same for a round on every machine; a turn of a conversation comes after the one before.
        Raises WorkloadError."""
        drawn = block(
            workload, num_requests, rate_per_s, round_index=round_index, max_total_tokens=self.max_total_tokens
        )
        requests: list[ServingRequest] = []
        for request in drawn:
            if (given := self._given_for(request)) is not None:
                request = replace(
                    request,
                    arrival_s=request.arrival_s if given.think_s is None or not requests else requests[-1].arrival_s,
                    prompt_tokens=given.num_tokens,
                    output_tokens=given.output_tokens or request.output_tokens,
                )
            requests.append(request)
        return tuple(requests)

    def _given_for(self, request: ServingRequest) -> FilePrompt | None:
        return self._given[request.id % len(self._given)] if self._given else None

    def send(self, requests: Sequence[ServingRequest], name: str, num_processes: int = 1) -> HttpRun:
        """Each when it is due; `name` tells these requests from all others of this run. More processes than one are
        beside this one (engines.http.shared_load).

        Raises MeasurementError where none was answered, with the reasons by count and the first one's words.
        """
        # httptools, where it is needed
        from pytest_npubench.engines.http.load_run import run_load
        from pytest_npubench.engines.http.shared_load import run_shared_load

        asked = [self._request(request, name) for request in requests]
        if num_processes > 1 and any(request.think_s is not None for request in asked):
            raise ConfigError("the turns of a conversation are sent by one process; want --processes 1")
        if num_processes == 1:
            run = run_load(self.endpoint, asked)
        else:
            run = run_shared_load(self.endpoint, asked, num_processes)
        if not any(answer.failed is None for answer in run.answers):
            raise MeasurementError(f"no request was answered: {self._why(run.answers)}")
        return run

    def _request(self, request: ServingRequest, name: str) -> HttpRequest:
        given = self._given_for(request)
        return HttpRequest(
            id=request.id,
            arrival_s=request.arrival_s,
            prompt=given.text
            if given
            else self._prompts.prompt(request.prompt_tokens, f"{name}/{request.id}", request.id),
            output_tokens=request.output_tokens,
            history=given.history if given else (),
            think_s=given.think_s if given else None,
        )

    def _why(self, answers: Sequence[HttpAnswer]) -> str:
        counted = in_words(by_name(class_of(answer.failed) for answer in answers), len(answers))
        return f"{counted} ({self.reason(answers[0])})"

    def reason(self, answer: HttpAnswer) -> str:
        """Why a request failed, and what may help."""
        reason = answer.failed or ""
        return f"{reason}; {hint}" if (hint := self._hint(answer, reason)) else reason

    def _hint(self, answer: HttpAnswer, reason: str) -> str:
        """Returns the option that helps: one that leaves out what the server does not take, or waits for it; else
        nothing."""
        body = self.endpoint.body("", answer.request.output_tokens)
        if "tokens came" in reason and body.get("ignore_eos"):
            return "a server without ignore_eos wants extra_body {} (load --extra-body): answers of their own length"
        if reason.startswith("HTTP 503") and "loading" in reason.lower():
            return "load --wait-ready 300s waits for it"
        if not reason.startswith(("HTTP 400", "HTTP 422")):
            return ""
        names = [name for name in ("continuous_usage_stats", *body) if re.search(rf"\b{re.escape(name)}\b", reason)]
        name = next((name for name in names if name not in OURS), None)
        return HINTS.get(name, f'extra_body {{"{name}": null}} {LEAVES_OUT}') if name else ""


def _room(asking: Asking, context_tokens: int | None) -> int:
    """Returns the longest prompt and answer together, in tokens."""
    if context_tokens is None:
        return asking.max_total_tokens
    room = context_tokens if asking.prompt == "tokens" else int(context_tokens * WORDS_FILL)
    return min(asking.max_total_tokens, room)

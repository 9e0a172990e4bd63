"""The requests of one block: lengths drawn from a workload, arrivals drawn at a rate, the same for every policy.

A round's seed draws both, so policies that are compared serve the same requests at the same times, and another round
serves others (Layered Prefill, section 5.1: Poisson arrivals; 5.12: gamma arrivals with a CV of 1.83).
"""

from __future__ import annotations

import re
from zlib import crc32

from pytest_npubench.serving.arrivals import gamma, load_of, poisson
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.workloads import ANY_UNIT, workload

DIVIDED = re.compile(r"(.+)-div([1-9][0-9]*)(?:x([1-9][0-9]*))?")


def lengths(name: str, num_requests: int, seed: int, max_total_tokens: int) -> tuple[tuple[int, int], ...]:
    """Prompt and output tokens of seeded requests; "layered-arxiv-div16" has those of layered-arxiv divided by 16,
    "layered-arxiv-div16x4" prompts divided by 16 and answers by 4.

    Only requests whose prompt and output together have at most max_total_tokens are drawn. Raises WorkloadError.
    """
    divided = DIVIDED.fullmatch(name)
    base, prompts_by = (divided[1], int(divided[2])) if divided else (name, 1)
    answers_by = int(divided[3] or prompts_by) if divided else 1
    fitting = max_total_tokens * min(prompts_by, answers_by)
    sample = workload(base, time_unit=ANY_UNIT).sample(num_requests, seed=seed, max_total_tokens=fitting)
    return tuple(
        (max(1, round(item.input_tokens / prompts_by)), max(1, round(item.output_tokens / answers_by)))
        for item in sample.requests
    )


def block(
    name: str, num_requests: int, rate_per_s: float, *, round_index: int, max_total_tokens: int, cv: float | None = None
) -> tuple[ServingRequest, ...]:
    """Returns the requests of one block; cv None: Poisson arrivals, else gamma arrivals of that CV."""
    seed = crc32(f"{name}/{round_index}".encode())
    times = poisson(rate_per_s, num_requests, seed) if cv is None else gamma(rate_per_s, cv, num_requests, seed)
    return load_of(times, lengths(name, num_requests, seed, max_total_tokens))

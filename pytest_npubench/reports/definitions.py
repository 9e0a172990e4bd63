"""One sentence for each figure of a report, so that no number stands without its meaning. What one suite alone shows is
defined beside its charts (suites/NAME/report)."""

from __future__ import annotations

import re
from functools import lru_cache

VERDICT = (
    "passed and failed hold a case against absolute limits; invalid means that it could not be measured, and why; "
    "the other verdicts compare with accepted sessions."
)
STANDARD_ERROR = "Error bars are one standard error of the repeats."
DRIFT = (
    "Mean of each point in a round over its mean in all rounds: 1 is no drift; what moves all points together falls "
    "on profile and judged batches alike, since each round visits all of them in shuffled order."
)
ANSWERS = (
    "Distances of the logits of 16 fixed tokens at a position, over their spread: the error is that from float64. The "
    "limits are a multiple of what rounding does; pairs that mean the same must be nearer than that, the farthest of "
    "which are told, and answers to changed prompts farther, the nearest of which are told."
)

SUMMARY = {
    "quartile": "of what the verdict is about: the better quartile of the samples, the lower one of times; of several "
    "processes their median.",
    "change": "against the accepted sessions, from the same quartiles.",
    "predicted": "the LENS prediction of the same quantity, made from the profile points alone; of a split what its "
    "solver predicted from measured parts.",
    "measured": "what was predicted, measured: of a batch the mean over the rounds, of a split the median.",
    "error": "(predicted - measured) / measured, signed, in percent.",
    "repeat": "relative standard error of the measured mean, in percent.",
}

METRICS = {
    "SLO attainment": "requests that keep the limits on TTFT and on every TBT, over arrived requests",
    "TTFT attainment": "requests whose first token was in time, over arrived requests",
    "TBT attainment": "finished requests none of whose gaps is over the limit, over arrived requests",
    "attainment": "requests that keep their limits, over arrived requests",
    "goodput": "requests that attain their SLO, over the seconds of the run",
    "capacity": "the rate at which 90 % of the arrived requests attain their SLO",
    "TBT std, per request": "mean over requests of the standard deviation of their own gaps",
    "TBT std, pooled": "standard deviation of the gaps of all requests together",
    "Jain's index": "how alike the speeds of requests are, (sum x)^2 / (n sum x^2); 1 is equal speed",
    "TTFT_b": "time to prefill one prompt that is padded to the b tokens of its bucket",
    "TBT_b": "time of one decode step while the longest KV cache of the batch lies in bucket b",
    "TTFT": "time to first token of a request: first token - arrival, queueing included",
    "TBT": "time between tokens: each gap between two tokens of a request",
    "E2E": "end-to-end time of a finished request: last token - arrival",
    "mean decode batch": "mean decode rows of the iterations that have any",
    "expert bytes": "experts that iterations load, summed over layers, times the bytes of one expert",
    "coverage": "distinct experts that a step's rows are routed to, over the experts of a layer, mean over layers",
    "dispatch lag": "how long after a request was due it was sent or noticed",
    "prediction error": "(predicted - measured) / measured, signed",
    "preemptions": "times a request lost its KV cache and was prefilled again",
}
"""What the names in heads of tables and on axes mean. Of several names in one text the first of these counts."""


@lru_cache(maxsize=4096)
def of(text: str) -> str:
    """The meaning of the metric that a head or an axis names, "mean TTFT, ms" say; empty where it names none."""
    return next((meaning for name, meaning in METRICS.items() if _NAMES[name].search(text)), "")


_NAMES = {name: re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE) for name in METRICS}

"""One sentence for each figure of a report, so that no number stands without its meaning.

Equations are those of LENS, arXiv 2606.18042.
"""

from __future__ import annotations

VERDICT = (
    "passed and failed hold a case against absolute limits; invalid means that it could not be measured, and why; "
    "the other verdicts compare with accepted sessions."
)
TTFT = (
    "TTFT_b, time to first token of bucket b: the time to prefill one prompt that is padded to b tokens "
    "(LENS, Eq. 14 and 15)."
)
TBT = (
    "TBT_b, time between tokens of bucket b: the time of one decode step while the longest KV cache of the batch "
    "lies in b (LENS, Eq. 14 and 15)."
)
STANDARD_ERROR = "Error bars are one standard error of the repeats."
STEPS = (
    "Prefill time of one prompt at lengths around each bucket boundary (dotted): latency should jump there and "
    "nowhere else."
)
PREDICTION_ERROR = (
    "Prediction error: (predicted - measured) / measured; a case is held to the larger of the error of the sum over "
    "its batches and the mean of the absolute errors of its batches."
)
REPEAT_ERROR = (
    "Repeat error: the relative standard error of the measured mean over the rounds; a prediction error of that size "
    "cannot be told from noise."
)
BATCHES = "One mark a drawn batch: its measured and its predicted end-to-end time; on the diagonal they agree."
PREFILL_PADDING = (
    "Prefill padding fraction: the share of prefilled positions that are padding, (bucket - true length) / bucket "
    "over many requests of the workload."
)
DECODE_PADDING = (
    "Decode padding fraction: the share of attended KV positions that are padding, over the decode steps of the same "
    "requests, each alone."
)
DROPPED = "Dropped: requests of the workload that no bucket holds, drawn and left out."
COST = (
    "What the LENS profile took: binaries compiled, points measured (two a bucket), and samples of the point that has "
    "most."
)
DRIFT = (
    "Mean of each point in a round over its mean in all rounds: 1 is no drift; what moves all points together falls "
    "on profile and judged batches alike, since each round visits all of them in shuffled order."
)

SUMMARY = {
    "measured": "what the case timed, in milliseconds: the mean over the rounds; for a workload the sum over its "
    "batches; for a callable of your own the median.",
    "predicted": "the LENS prediction of the same quantity, made from the profile points alone.",
    "error": "(predicted - measured) / measured, signed, in percent.",
    "repeat": "relative standard error of the measured mean, in percent.",
}

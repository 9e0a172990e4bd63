"""One sentence for each figure of a report, so that no number stands without its meaning. What one suite alone shows is
defined beside its charts (suites/NAME/report)."""

from __future__ import annotations

VERDICT = (
    "passed and failed hold a case against absolute limits; invalid means that it could not be measured, and why; "
    "the other verdicts compare with accepted sessions."
)
STANDARD_ERROR = "Error bars are one standard error of the repeats."
DRIFT = (
    "Mean of each point in a round over its mean in all rounds: 1 is no drift; what moves all points together falls "
    "on profile and judged batches alike, since each round visits all of them in shuffled order."
)

SUMMARY = {
    "measured": "what the case timed, in milliseconds: the mean over the rounds; for a workload the sum over its "
    "batches; for a policy the mean TTFT of its requests; for an operator, a layer or a callable of your own the "
    "median.",
    "predicted": "the LENS prediction of the same quantity, made from the profile points alone; of a split what its "
    "solver predicted from measured parts.",
    "error": "(predicted - measured) / measured, signed, in percent.",
    "repeat": "relative standard error of the measured mean, in percent.",
}

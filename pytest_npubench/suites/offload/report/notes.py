"""What the figures of the offload suite mean, one text each; errors are those of made-up tensors."""

from __future__ import annotations

ERROR = "Relative errors are numerical ones of made-up tensors against float32, no model's accuracy."
CHUNKS = (
    "The same prompt with one graph for its very length (whole), padded to the longest, in chunks with a graph each, "
    "and in chunks that share what does not depend on the chunk's place. Times are medians over the rounds; ratios to "
    "whole are medians of the rounds' own, and an interval needs 6 rounds. Weights are constants in the graphs."
)
SHADOW_ERROR = (
    "Seven ways to multiply: float32, INT8 with a per-tensor scale, INT8 clipped, clipped with the outliers apart on "
    "the other unit (serial, parallel with fast or slow signals), and both in one graph of one unit (mixed)."
)
SHADOW_TIME = "Time of one product, median over the rounds."
SYNC_SHARE = (
    "The part of the time in which neither unit's own work is done: (total - the longer part) / total; of serial, what "
    "both parts leave."
)
PRUNED = (
    "Outliers left out, the smallest channels or the least important layers first; in the table also what is left of "
    "the other unit's work. Computed, not timed."
)
MISSED = (
    "Hot channels that moved since they were listed: error with the missed ones dropped, and with their weights "
    "fetched. Computed, not timed."
)
SIMULATED = (
    "Orders of subgraphs in simulated time, durations as in docs/offload.md: the static unit's idle share, and in "
    "parentheses the time over FIFO's."
)
REPLAYED = (
    "The same orders on the pair: each unit takes what is ready by the order's rule. Ratios to FIFO are medians of the "
    "rounds' own; an interval needs 6 rounds. Predicted is the order simulated with durations measured before."
)
CONTENTION = (
    "The orders again with nothing else, with random stalls of the units, and beside a process that moves memory all "
    "the time. Below 1 an order beats FIFO under the same disturbance."
)
CELLS = "One prefill with each technique on or off, all eight ways; medians over the rounds, time over that with none."
EFFECTS = (
    "With / without a technique, geometric mean over the other techniques, taken round by round; below 1 it improves "
    "the figure. An interaction is a ratio of such ratios. In parentheses Student's 95 % interval over the rounds."
)
DRIFT = (
    "Time of each point in a round over its mean in all rounds: the work is the same in each, but for random stalls "
    "and what else takes the memory."
)

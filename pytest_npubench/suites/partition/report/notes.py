"""What the figures of the partition suite mean, one text each; HeteroInfer names the characteristics."""

from __future__ import annotations

GPU_TIME = (
    "One operator on the unit of dynamic shapes alone, median over the rounds. GPU-1: the time is flat up to a "
    "threshold (diamond) and linear past it; one is told only where it explains the times better than a straight line."
)
GPU_RATE = "The same times as a rate: 2 x rows x columns x tokens, over the seconds."
NPU_STAGE = (
    "One operator on the unit of static shapes alone, with a graph for each length, median over the rounds. NPU-1: the "
    "time goes up in stages; a width (dotted) is told only where it explains the times better than a straight line."
)
GRAPHS = (
    "Cold compile of a graph for a length that none exists for, a fresh one in every round. A growth with the size of "
    "the output is told only where it is above 0 at one false alarm in 1,000."
)
MEMORY = (
    "Memory-1: bytes a second that the units read, each alone and both at once, median over the rounds; the error bars "
    "reach from the lowest to the highest round."
)
RATIOS = (
    "On the unit of static shapes alone; ratios are medians over the rounds' own ratios. NPU-2: the product with the "
    "activation as the first operand, over that with the weight first. NPU-3: the weight with more columns than rows, "
    "over the same numbers with more rows than columns. 1 is no difference; an interval needs 6 rounds."
)
SYNC = "GPU-2: a signal to the other unit and back, by each way of waiting; p99 needs 100 trips."
OVERLAP = (
    "Operators that depend on each other, one after the other, each split over both units; queued are the same "
    "operators without dependencies. In decode the GPU has three quarters of the rows, in prefill one. Exposed is what "
    "an operator of the chain takes beyond its slower unit."
)
SOLVER = (
    "Every split of every strategy runs in each round. The best is chosen in half of the rounds; all times here are "
    "from the other half, so that regret, decided / best - 1, can come out below 0."
)
EDGES = (
    "One operator at lengths on and just past the sizes that graphs exist for, median over the rounds. Padding runs "
    "the next larger graph, pipe a few that fit together, chunked always the smallest, and online prepare compiles one "
    "for this very length."
)
LAYER = "A whole decoder layer, attention and feed-forward, median over the rounds; its output is that of one unit."
DRIFT = (
    "Time of a run on one unit alone in a round, over its mean in all rounds: the work is the same in each, so this "
    "shows the machine."
)

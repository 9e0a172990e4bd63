"""One sentence for each figure of a report, so that no number stands without its meaning. What the bucket suite alone
shows is defined beside its charts (suites/buckets/report)."""

from __future__ import annotations

VERDICT = (
    "passed and failed hold a case against absolute limits; invalid means that it could not be measured, and why; "
    "the other verdicts compare with accepted sessions."
)
STANDARD_ERROR = "Error bars are one standard error of the repeats."
POLICIES = (
    "Every policy serves the same requests at the same times. A figure is that of all blocks together, in parentheses "
    "its 95 % interval; n is what it rests on, one number where it is the same for all policies."
)
SERVED_TTFT = (
    "TTFT, time to first token of a request: first token - arrival, so queueing is part of it. Error bars are 95 % "
    "intervals of the mean."
)
SERVED_TBT = (
    "TBT, time between tokens: every gap between two tokens of a request. Error bars are 95 % intervals of the mean."
)
CHUNK_BYTES = (
    "Expert bytes: each chunk loads every expert that one of its tokens is routed to, so smaller chunks load the same "
    "experts again; bytes are the experts loaded, summed over chunks and layers, times the bytes of one expert."
)
CHUNK_REPORTED = (
    "reported (Layered Prefill, section 3.2 and Fig. 2: Qwen3-30B-A3B, a prompt of 8,192 tokens): the load falls in "
    "inverse proportion to the chunk size, below 100 GB with the largest, and prefill from over 500 ms in chunks of "
    "512 to near 200 ms."
)
CHUNK_PREFILL = "Prefill time of one prompt alone, from its arrival to its first token."
EXPERT_COVERAGE = (
    "Expert coverage: distinct experts that the rows of one decode step are routed to, over the experts of a layer, "
    "mean over layers."
)
COVERAGE_REPORTED = (
    "The reported column is another model on another data set: its rise can be compared, its level only where experts "
    "and experts a token are the same."
)
GROUPS = (
    "Layered prefill with a fixed number of layer groups, one of which prefills in an iteration: mean TTFT of all "
    "requests, and the longest gap between two tokens of any request."
)
GROUPS_REPORTED = "its tail of TBT is a p99; other model, device and rate, so its direction alone can be compared"
LATENCY = (
    "TTFT: first token - arrival, queueing included. TBT: every gap between two tokens of a request. E2E: last token - "
    "arrival of a finished request. In parentheses the 95 % interval; n requests, of TBT n gaps."
)
ENERGY = (
    "Energy of the device's counter around each block, idle power included, over prompt and output tokens together and "
    "over output tokens alone. A processor's counter is that of its whole packages, whoever used them. Idle power is "
    "measured beside the blocks with the weights loaded; only the row that says so has it taken off."
)
ENERGY_REPORTED = "its energy is a prompt and output token, though its text calls it an output token"
DENSE = (
    "A dense decoder has no expert loads to save: layered prefill must not win here. Ratios are means over pairs of "
    "blocks that served the same requests."
)
EXPERT_LOADS = (
    "Experts loaded by each iteration, summed over layers and iterations, times the bytes of one: the same requests "
    "under both policies, all blocks together."
)
RELAXED = (
    "All requests are there when a block begins; tokens a second of the whole block. With larger iterations, that is "
    "longer chunks and fewer layer groups, both policies should come close to each other."
)
RELAXED_REPORTED = "under a relaxed limit on TBT at 2.5 req/s both have 2.47 s mean TTFT and 78.6 ms mean TBT"
APART = (
    "One process prefills, another decodes, on equal hardware together; a request's keys and values go from one to the "
    "other, which is part of its first gap. The other policies have all of it as one."
)
CHUNK_RATES = (
    "Chunked prefill by chunk size, each at the rate at which half of the requests have their first token within that "
    "limit; the other figures lie between those of the rates that were served."
)
CAPACITY = (
    "Capacity: the rate at which 90 % of the arrived requests attain their SLO, from a curve through all blocks, with "
    "its 95 % interval where there are enough blocks near it."
)
CAPACITY_REPORTED = "the highest rates that meet its limits"
POLICY_REPORTED = "mean and tail of one rate under the paper's own limits"
ATTAINMENT = (
    "SLO attainment: requests whose TTFT and every TBT keep their limits, over arrived requests; in the table also "
    "each limit alone. A block is short, so its queue is not that of a lasting service: for comparing policies only."
)
ATTAINMENT_REPORTED = (
    "reported (Layered Prefill, section 5.2, Fig. 3): layered prefill improves performance by about 14 to 45 %, "
    "depending on the workload."
)
TIMELINE = (
    "The request with the median end-to-end time under chunked prefill in the first block; each step up is a token."
)
TIMELINE_REPORTED = (
    "reported (Layered Prefill, Fig. 5: Qwen3-30B-A3B, arXiv at 1.3 req/s): mean end-to-end time 9.4 s chunked, 5.5 s "
    "layered."
)
DRIFT = (
    "Mean of each point in a round over its mean in all rounds: 1 is no drift; what moves all points together falls "
    "on profile and judged batches alike, since each round visits all of them in shuffled order."
)
SERVING_DRIFT = (
    "Figure of each point in a round over its mean in all rounds: of a block the mean TTFT of its requests, which are "
    "others in each round but the same for every policy; of a prompt its prefill and of a decode batch its step, which "
    "repeat the same work and show the machine alone."
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

"""The published length statistics that the rebuilt workloads start from, as data.

Sources: LENS (arXiv 2606.18042v2), Table 4, and "From tokens to layers: redefining stall-free scheduling for MoE
serving with layered prefill", Table 4. Bounds are natural ones (a length is at least one token) or follow from the
filter that the table names; the one bound that is assumed says so. Lengths are in tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_npubench.errors import WorkloadError

_LENS = "LENS (arXiv 2606.18042v2), Table 4, row "
_LAYERED = "From tokens to layers (layered prefill), Table 4, row "
_8K = 8192  # "max 8k total tokens"; section 5 of LENS: samples exceeding 8,192 tokens are excluded


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLengths:
    """What a source says about one length: mean and p90, with median or std or both; None where it does not say.

    Raises WorkloadError for figures that no length distribution can have.
    """

    mean: float
    p90: float
    median: float | None = None
    std: float | None = None
    lower: float = 1.0
    upper: float = math.inf

    def __post_init__(self) -> None:
        if self.median is None and self.std is None:
            raise WorkloadError(f"{self}: want a median or a standard deviation beside the mean and the p90")
        if not 1 <= self.lower < self.mean < self.upper:
            raise WorkloadError(f"{self}: want 1 <= lower < mean < upper")
        if not (self.lower if self.median is None else self.median) < self.p90 < self.upper:
            raise WorkloadError(f"{self}: want the median (or the lower bound) < p90 < upper")
        if self.median is not None and self.median <= self.lower:
            raise WorkloadError(f"{self}: want lower < median")
        if self.std is not None and not self.std > 0:
            raise WorkloadError(f"{self}: want a standard deviation > 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedWorkload:
    """One row of a published table. max_total_tokens is the filter (input + output) that the statistics are after."""

    name: str
    source: str
    note: str
    input: PublishedLengths
    output: PublishedLengths
    max_total_tokens: int | None = None


PUBLISHED = (
    PublishedWorkload(
        name="lens-sharegpt",
        source=_LENS + "'ShareGPT with max 8k total tokens'",
        note="ChatGPT conversations; the table gives the same figures before and after the 8k filter",
        input=PublishedLengths(mean=167, median=23, p90=403, upper=_8K - 1),
        output=PublishedLengths(mean=327, median=296, p90=666, upper=_8K - 1),
        max_total_tokens=_8K,
    ),
    PublishedWorkload(
        name="lens-cnn-dailymail",
        source=_LENS + "'CNN/DailyMail'",
        note="news article summarisation, unfiltered",
        input=PublishedLengths(mean=865, median=788, p90=1458),
        output=PublishedLengths(mean=64, median=60, p90=95),
    ),
    PublishedWorkload(
        name="lens-cnn-dailymail-1k",
        source=_LENS + "'CNN/DailyMail with input length > 1,024 tokens'",
        note="news article summarisation, inputs above 1,024 tokens",
        input=PublishedLengths(mean=1393, median=1305, p90=1872, lower=1025),
        output=PublishedLengths(mean=73, median=67, p90=113),
    ),
    PublishedWorkload(
        name="lens-arxiv",
        source=_LENS + "'ArXiv Summarization'",
        note="paper summarisation, unfiltered; outputs above 32,768 tokens are ruled out by assumption: the published "
        "mean lies far above the median, and no maximum is published",
        input=PublishedLengths(mean=8605, median=6879, p90=16078),
        output=PublishedLengths(mean=355, median=202, p90=411, upper=32768),
    ),
    PublishedWorkload(
        name="lens-arxiv-8k",
        source=_LENS + "'ArXiv-Summarization with max 8k total tokens'",
        note="paper summarisation, at most 8,192 tokens in all",
        input=PublishedLengths(mean=4822, median=4894, p90=7229, upper=_8K - 1),
        output=PublishedLengths(mean=207, median=175, p90=326, upper=_8K - 1),
        max_total_tokens=_8K,
    ),
    PublishedWorkload(
        name="lens-writing-prompts",
        source=_LENS + "'Writing Prompts with max 8k total tokens'",
        note="stories from short prompts; the table gives the same figures before and after the 8k filter",
        input=PublishedLengths(mean=30, median=28, p90=52, upper=_8K - 1),
        output=PublishedLengths(mean=701, median=577, p90=1368, upper=_8K - 1),
        max_total_tokens=_8K,
    ),
    PublishedWorkload(
        name="layered-sharegpt",
        source=_LAYERED + "'ShareGPT'",
        note="multi-turn conversations with their history in the prompt; no median is published",
        input=PublishedLengths(mean=2340, p90=5696, std=2088),
        output=PublishedLengths(mean=438, p90=834, std=265),
    ),
    PublishedWorkload(
        name="layered-arxiv",
        source=_LAYERED + "'arXiv'",
        note="paper summarisation; no median is published",
        input=PublishedLengths(mean=9194, p90=17152, std=5754),
        output=PublishedLengths(mean=231, p90=386, std=104),
    ),
)

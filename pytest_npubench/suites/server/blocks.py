"""A block of requests that a server was sent: what its client saw.

Of the client's own stalls the median, the 99th percentile and the worst are kept; of each failure its class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.campaign.visits import Columns, Visit
from pytest_npubench.engines.http.answer import REMARKS
from pytest_npubench.engines.http.token_times import EVENTS, LISTED, RUNNING, SPREAD
from pytest_npubench.serving.metrics import RequestRecord, Slo
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.suites.server.failures import by_name, class_of
from pytest_npubench.suites.server.own_figures import OwnFigures

if TYPE_CHECKING:
    from pytest_npubench.engines.http.answer import HttpAnswer
    from pytest_npubench.engines.http.load_run import HttpRun

AT_ONCE_S = 0.002
IN_ONE_PIECE = f"all tokens came within {AT_ONCE_S * 1e3:g} ms: something between buffers the stream"
COUNTED_BY = ("", RUNNING, LISTED, SPREAD, EVENTS)


class LoadBlock(ServedBlock):
    """Nothing outside a server sees its iterations, so there are none. The TTFT and the gaps of a request that failed
    are in no figure of latency: how it would have gone on nobody knows."""

    __slots__ = ()

    @property
    def answered(self) -> LoadBlock:
        """Returns the same block without the requests that failed."""
        return replace(self, records=tuple(record for record in self.records if record.aborted is None))

    @property
    def ttfts_s(self) -> list[float]:
        return [record.ttft_s for record in self.answered.records if record.token_times_s]

    @property
    def gaps_s(self) -> list[float]:
        return [gap_s for record in self.answered.records for gap_s in record.tbt_s]

    @property
    def failures(self) -> dict[str, int]:
        """How many requests failed for each reason, the most common first."""
        return by_name(record.aborted for record in self.records)

    @property
    def num_counted_by(self) -> dict[str, int]:
        """How many requests had their tokens counted in each way."""
        return dict(Counter(COUNTED_BY[code] for code in self.counted_by if code))

    @property
    def num_remarked(self) -> dict[str, int]:
        """On how many answers each remark was made, and how many came in one piece."""
        remarked = {text: number for text, number in zip(REMARKS, self.remarks, strict=False) if number}
        return remarked | ({IN_ONE_PIECE: self.num_in_one_piece} if self.num_in_one_piece else {})

    @property
    def num_in_one_piece(self) -> int:
        """Answers of several tokens that all came within AT_ONCE_S."""
        several = [record.token_times_s for record in self.records if record.num_tokens > 1]
        return sum(times_s[-1] - times_s[0] <= AT_ONCE_S for times_s in several)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedBlock(Visit):
    """A block, and what the server said of itself meanwhile: a round keeps both under the point's name, and gives each
    back by its own class."""

    block: LoadBlock
    server: OwnFigures

    def columns(self) -> Columns:
        return {**self.block.columns(), **self.server.columns()}


def load_block(run: HttpRun, requests: Sequence[ServingRequest], *, rate_per_s: float, slo: Slo | None) -> LoadBlock:
    """What came of these requests, in the order of their arrival. Times are seconds from the start of the block."""
    pairs = sorted(zip(run.answers, requests, strict=True), key=lambda pair: pair[0].request.arrival_s)
    return LoadBlock(
        records=tuple(
            RequestRecord(
                id=index,
                arrival_s=answer.request.arrival_s,
                dispatched_s=answer.dispatched_s,
                token_times_s=answer.token_times_s,
                prompt_tokens=request.prompt_tokens,
                output_tokens=request.output_tokens if answer.failed else len(answer.token_times_s),
                aborted=class_of(answer.failed),
            )
            for index, (answer, request) in enumerate(pairs)
        ),
        counted_by=tuple(COUNTED_BY.index(answer.counted_by) for answer, _ in pairs),
        remarks=tuple(sum(_is_remarked(answer, text) for answer in run.answers) for text in REMARKS),
        stalls_s=_stalls_s(run),
        ended_s=run.ended_s,
        rate_per_s=rate_per_s,
        slo=slo,
    )


def _is_remarked(answer: HttpAnswer, remark: str) -> bool:
    return any(text.partition(":")[0] == remark for text in answer.remarks)


def _stalls_s(run: HttpRun) -> tuple[float, float, float]:
    if not run.loop_stalls_s:  # over before the watch looked once
        return 0.0, 0.0, 0.0
    stalls_s = np.maximum(run.loop_stalls_s, 0.0)
    median_s, p99_s = np.quantile(stalls_s, (0.5, 0.99))
    return float(median_s), float(p99_s), float(stalls_s.max())

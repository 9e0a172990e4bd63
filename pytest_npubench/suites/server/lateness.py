"""Whether the client itself was late, and so timed its own slowness.

The client's part of a figure is held against the figure, like with like, and may be SHARE of it:

    mean dispatch lag (sent - due)         of the mean TTFT
    dispatch lag at p99                    of the TTFT at p99
    stalls of its event loop at p99,       of the gaps at p99, those between tokens that came together left out
    less the 1 ms that timers round up by

Tokens that came together, within AT_ONCE_S, have gaps that no stall makes longer: a proxy that buffers, or speculative
decoding, makes most gaps 0. Where all answers came in one piece, stalls are held against the mean TTFT, which is all
that they could change. And no stall may be longer than the limit on a TBT: what comes meanwhile is put off, so one such
stall fails every request that is being answered, whatever the server did. A case of which one of these is not so is
invalid.

Worked example: a mean TTFT of 120 ms and a mean dispatch lag of 15 ms: 12.5 %, more than the 10 % allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pytest_npubench.suites.server.blocks import AT_ONCE_S, LoadBlock

SHARE = 0.10
TIMER_S = 0.001
FEW = 100


def dispatch_lag_p99_s(block: LoadBlock) -> float:
    return p99(dispatch_lags_s(block))


def dispatch_lags_s(block: LoadBlock) -> list[float]:
    """Lists the lags of the requests that were sent: all, unless a process of the client was lost."""
    return [record.dispatch_lag_s for record in block.records if record.dispatched_s is not None]


def p99(values: Sequence[float]) -> float:
    """Returns the 99th percentile; of fewer than 100 values the maximum, as in serving.metrics."""
    return float(np.quantile(values, 0.99)) if len(values) >= FEW else max(values)


def why_late(block: LoadBlock) -> str | None:
    """Says why the client was late; None where it kept up. What has no tokens says nothing of a server."""
    for what, late_s, of, whole_s in _parts(block):
        if late_s > SHARE * whole_s:
            late = f"its {what} of {_ms(late_s)} is over {SHARE:.0%} of the {of}, {_ms(whole_s)}"
            return f"the client was late itself: {late}"
    worst_s = block.stalls_s[2]
    if block.slo is not None and worst_s > block.slo.tbt_s:
        return (
            f"the client was late itself: its event loop stood still for {_ms(worst_s)}, longer than the limit of "
            f"{_ms(block.slo.tbt_s)} on a TBT"
        )
    return None


def _parts(block: LoadBlock) -> Iterator[tuple[str, float, str, float]]:
    """What the client adds, in seconds, and the figure that it is added to."""
    lags_s = dispatch_lags_s(block)
    ttfts_s, gaps_s = block.ttfts_s, block.gaps_s
    stall, stall_s = "event loop's stalls at p99", block.stalls_s[1] - TIMER_S
    if ttfts_s:
        yield "mean dispatch lag", float(np.mean(lags_s)), "mean TTFT", float(np.mean(ttfts_s))
        yield "dispatch lag at p99", p99(lags_s), "TTFT at p99", p99(ttfts_s)
    if apart_s := [gap_s for gap_s in gaps_s if gap_s > AT_ONCE_S]:
        yield stall, stall_s, "TBT at p99", p99(apart_s)
    elif gaps_s and block.num_in_one_piece == sum(record.num_tokens > 1 for record in block.records):
        yield stall, stall_s, "mean TTFT", float(np.mean(ttfts_s))
    elif gaps_s:
        yield stall, stall_s, "TBT at p99", p99(gaps_s)


def _ms(value_s: float) -> str:
    return f"{value_s * 1e3:.3g} ms"

"""vLLM's own client and ours on the same servers: python benchmarks/bench_serve.py [--pairs 6] [--requests 24] ...

Both send the same prompts, output lengths and arrivals, greedy and past any end of sequence, in alternating blocks
(ours, vLLM's, vLLM's, ours, ...), so that a drift of the machine cancels. Two servers are asked: known_answer, whose
times are given beforehand, so that each client's error is known; and `vllm serve` on a small random model.

TTFT counts from the sending here, as in vLLM's client (in our suites it counts from the arrival). Events that come in
one read have one time for us; vLLM's client gives each the time it was parsed, some microseconds later. So a server
that falls behind its own engine shows gaps of 0 here and of microseconds there, and no ratio is formed of a 0.

Ratios are ours / vLLM's of neighbouring blocks; their intervals are Student's t on the logarithms, wide enough that
all of a table hold 1 together 19 times in 20 where the clients agree.

NPUBENCH_VLLM_PYTHON names the interpreter with vLLM. No network is used.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench_serve_clients import FIGURES, Block, Load, VllmClient, made_load, run_ours
from bench_serve_servers import KNOWN_ITL_S, KNOWN_TTFT_S, known_server, prepare, vllm_server

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.vllm.process import vllm_python
from pytest_npubench.stats.margin_test import interval

Pair = tuple[Block, Block]
TRUTH_S = {figure: KNOWN_TTFT_S if "TTFT" in figure else KNOWN_ITL_S for figure in FIGURES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """ours / vLLM's: the geometric mean over pairs of blocks, its interval, the deviation of one pair's logarithm."""

    value: float
    low: float
    high: float
    spread: float

    @property
    def agrees(self) -> bool:
        return self.low <= 1 <= self.high


def alternating(url: str, load: Load, client: VllmClient, num_pairs: int) -> list[Pair]:
    """(ours, vLLM's) of each pair; who comes first changes from pair to pair."""
    pairs = []
    for index in range(num_pairs):
        if index % 2 == 0:
            ours, theirs = run_ours(url, load), client.run(url, load)
        else:
            theirs, ours = client.run(url, load), run_ours(url, load)
        pairs.append((ours, theirs))
    return pairs


def ratios(pairs: Sequence[Pair], coverage: float = 0.95) -> dict[str, Ratio]:
    """Of every figure that is not 0 in any block, from two pairs or more.

    `coverage` is that of all intervals together (Bonferroni).

    Worked example: ratios 1.1 and 1 / 1.1 of a figure: value 1, and an interval that holds 1.
    """
    each = 1 - (1 - coverage) / len(FIGURES)
    formed = [figure for figure in FIGURES if all(block.figures_s[figure] > 0 for pair in pairs for block in pair)]
    return {figure: _ratio(pairs, figure, each) for figure in formed}


def _ratio(pairs: Sequence[Pair], figure: str, coverage: float) -> Ratio:
    logs = np.log([ours.figures_s[figure] / theirs.figures_s[figure] for ours, theirs in pairs])
    spread = float(logs.std(ddof=1))
    low, high = interval(logs.mean(), spread / np.sqrt(logs.size), logs.size - 1, coverage)
    return Ratio(value=float(np.exp(logs.mean())), low=float(np.exp(low)), high=float(np.exp(high)), spread=spread)


def show(title: str, pairs: Sequence[Pair], truth_s: Mapping[str, float] | None = None) -> None:
    """A table: each figure's mean over blocks, how far that is from the truth where one is known, and the ratio."""
    print(f"\n{title}: {len(pairs)} pairs of blocks, {len(pairs[0][0].output_tokens)} requests each")
    error = "   error, ms: ours, vLLM's" if truth_s else ""
    print(f"{'':12} {'ours, ms':>9} {'vLLM, ms':>9}   ratio [its interval], spread of a pair{error}")
    formed = ratios(pairs)
    for figure in FIGURES:
        ours, theirs = (float(np.mean([pair[side].figures_s[figure] for pair in pairs])) for side in (0, 1))
        row = f"{figure:12} {ours * 1000:9.3f} {theirs * 1000:9.3f}   "
        row += _ratio_text(formed[figure]) if figure in formed else "no ratio: tokens of a block came in one piece"
        if truth_s:
            row += f"   {(ours - truth_s[figure]) * 1000:+.3f}, {(theirs - truth_s[figure]) * 1000:+.3f}"
        print(row)


def _ratio_text(ratio: Ratio) -> str:
    differ = "" if ratio.agrees else " differ"
    return f"{ratio.value:.4f} [{ratio.low:.4f}, {ratio.high:.4f}], {ratio.spread:.2%}{differ}"


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="vLLM's client and ours on the same servers.")
    parser.add_argument("--pairs", type=int, default=6, help="of blocks, on each server; at least 2")
    parser.add_argument("--requests", type=int, default=24, help="in a block")
    parser.add_argument("--rate-per-s", type=float, default=4.0)
    parser.add_argument("--shape", default="small-dense", help="of the model that vLLM serves")
    options = parser.parse_args()
    python, shape = vllm_python(), decoder_shape(options.shape)
    load = made_load(options.requests, options.rate_per_s, vocab_size=shape.vocab_size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, shape)
        with VllmClient(folder, python) as client:
            with known_server(folder) as url:
                show("known-answer server", alternating(url, load, client, options.pairs), TRUTH_S)
            with vllm_server(folder, python) as url:
                alternating(url, load, client, 1)  # warms the server up
                show(f"vllm serve, {options.shape}", alternating(url, load, client, options.pairs))


if __name__ == "__main__":
    main()

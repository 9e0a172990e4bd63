"""One visit of a split: it runs a few times in a row where it is short, and the middle of those runs counts.

Worked number: a split of 1 ms runs 5 times (5 ms a visit), one of 20 ms once, one of 50 us 25 times.
"""

from __future__ import annotations

from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.unit import SplitTiming, UnitPair

VISIT_S = 0.005
MAX_RUNS = 25


def visit(pair: UnitPair, matmul: Matmul, split: Split, mechanism: str | None) -> SplitTiming:
    """The run of median total time (the lower middle one of an even number)."""
    first = pair.run(matmul, split, mechanism=mechanism)
    num_runs = min(MAX_RUNS, int(VISIT_S / first.total_s)) if first.total_s > 0 else MAX_RUNS
    runs = [first, *(pair.run(matmul, split, mechanism=mechanism) for _ in range(num_runs - 1))]
    return sorted(runs, key=lambda timing: timing.total_s)[(len(runs) - 1) // 2]

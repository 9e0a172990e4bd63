"""Standard sizes one after the other on the NPU alone (HeteroInfer, section 5.3.2, NPU-pipe): a baseline of Fig. 14.

The largest size that fits comes next; what is smaller than every size is padded to the smallest.

Worked number: 525 tokens on 64, 128, 256, 512: 512, then 13 padded to 64; padding alone would take 512 and 512.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.strategies.parts import npu_parts


class Pipe:
    name = "pipe"
    is_baseline = True

    def splits(self, matmul: Matmul, options: SplitOptions) -> Iterator[Split]:
        yield Split(strategy=self.name, parts=npu_parts(matmul, _sequence(matmul.tokens, options)))


def _sequence(tokens: int, options: SplitOptions) -> Iterator[int]:
    if not options.standard_sizes:
        yield tokens
        return
    while tokens > 0:
        size = max((size for size in options.standard_sizes if size <= tokens), default=options.standard_sizes[0])
        yield size
        tokens -= size


STRATEGY = Pipe()

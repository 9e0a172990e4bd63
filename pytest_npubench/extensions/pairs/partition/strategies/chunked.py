"""Chunks of one fixed size on the NPU alone, the last one padded (llm.npu's chunked prefill): a baseline of Fig. 14.

HeteroInfer, section 5.3.2: the size must be chosen with care, so there is a split for each standard size.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.strategies.parts import npu_parts


class Chunked:
    name = "chunked"
    is_baseline = True

    def splits(self, matmul: Matmul, options: SplitOptions) -> Iterator[Split]:
        for size in options.standard_sizes:
            num_chunks = -(-matmul.tokens // size)
            yield Split(strategy=self.name, parts=npu_parts(matmul, (size,) * num_chunks))


STRATEGY = Chunked()

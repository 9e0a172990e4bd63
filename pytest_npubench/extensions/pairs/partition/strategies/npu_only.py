"""All on the NPU, padded to the smallest standard size that holds the tokens (HeteroInfer, section 5.3.2, Padding).

More tokens than the largest size are cut into that size; what is left over is padded likewise.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.strategies.parts import npu_parts


class NpuOnly:
    name = "npu_only"
    is_baseline = False

    def splits(self, matmul: Matmul, options: SplitOptions) -> Iterator[Split]:
        yield Split(strategy=self.name, parts=npu_parts(matmul, options.padded(matmul.tokens)))


STRATEGY = NpuOnly()

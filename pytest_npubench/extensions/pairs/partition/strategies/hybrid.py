"""Tokens padded for the NPU's share, then weight rows cut between the units (HeteroInfer, section 4.2.3, Fig. 9).

The GPU runs the true number of tokens. Where that is a standard size nothing is padded: that is weight_centric.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.strategies.parts import row_splits


class Hybrid:
    name = "hybrid"
    is_baseline = False

    def splits(self, matmul: Matmul, options: SplitOptions) -> Iterator[Split]:
        if not options.is_standard(matmul.tokens):
            yield from row_splits(self.name, matmul, options)


STRATEGY = Hybrid()

"""Weight rows cut between the units, where the tokens are a standard size (HeteroInfer, section 4.2.1, Fig. 7)."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.strategies.parts import row_splits


class WeightCentric:
    name = "weight_centric"
    is_baseline = False

    def splits(self, matmul: Matmul, options: SplitOptions) -> Iterator[Split]:
        if options.is_standard(matmul.tokens):
            yield from row_splits(self.name, matmul, options)


STRATEGY = WeightCentric()

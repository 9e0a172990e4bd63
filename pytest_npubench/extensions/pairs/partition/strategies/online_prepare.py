"""A graph for exactly this length, made when it is needed (HeteroInfer, section 5.3.2): a baseline of Fig. 14."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.strategies.parts import npu_parts


class OnlinePrepare:
    name = "online_prepare"
    is_baseline = True

    def splits(self, matmul: Matmul, options: SplitOptions) -> Iterator[Split]:
        yield Split(strategy=self.name, parts=npu_parts(matmul, (matmul.tokens,)), prepares_online=True)


STRATEGY = OnlinePrepare()

"""All on the GPU, which takes the true number of tokens (HeteroInfer, Eq. of section 4.4, T_GPU of all)."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.strategies.parts import gpu_part


class GpuOnly:
    name = "gpu_only"
    is_baseline = False

    def splits(self, matmul: Matmul, options: SplitOptions) -> Iterator[Split]:
        yield Split(strategy=self.name, parts=(gpu_part(matmul),))


STRATEGY = GpuOnly()

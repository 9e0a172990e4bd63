"""Tokens cut between the units: standard sizes one after the other on the NPU, the rest on the GPU.

HeteroInfer, section 4.2.2 and Fig. 9. The NPU's sizes are a multiset, the largest first: any number of the largest
standard size and at most options.max_small_parts smaller ones; the GPU has at least one token.

Worked number: 300 tokens, sizes 128 and 256: NPU 256, GPU 44; NPU 128 + 128, GPU 44; NPU 128, GPU 172.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.strategies.parts import gpu_part, npu_parts


class ActivationCentric:
    name = "activation_centric"
    is_baseline = False

    def splits(self, matmul: Matmul, options: SplitOptions) -> Iterator[Split]:
        for sizes in _multisets(options, below=matmul.tokens):
            npu = npu_parts(matmul, sizes)
            yield Split(strategy=self.name, parts=(gpu_part(matmul, first_token=sum(sizes)), *npu))


def _multisets(options: SplitOptions, below: int) -> Iterator[tuple[int, ...]]:
    """Yields the multisets whose sum is 1 .. below - 1, each once."""
    if not options.standard_sizes:
        return
    *smaller, largest = options.standard_sizes
    for num_largest in range((below - 1) // largest, -1, -1):
        for num_small in range(options.max_small_parts + 1):
            for small in combinations_with_replacement(reversed(smaller), num_small):
                sizes = (*(largest,) * num_largest, *small)
                if sizes and sum(sizes) < below:
                    yield sizes


STRATEGY = ActivationCentric()

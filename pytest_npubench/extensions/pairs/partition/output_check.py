"""Whether a split computes its operator: every entry of its output against the product of its operands in float64.

    |out[i, j] - sum_k W[i, k] X[k, j]|  <=  gamma(K) |W[i, :]| |X[:, j]|        gamma(K) = LAMBDA sqrt(K) u

A sum of K products in float32 rounds each of them at most K times, by u = 2^-24 or less. If roundings are independent
and of mean 0, their sum stays below LAMBDA sqrt(K) u times the sum of the products' magnitudes, in any order of
summation, but for a chance of 2 exp(-LAMBDA^2 / 2) a product (Higham and Mary, A New Approach to Probabilistic Rounding
Error Analysis, 2019, theorem 3.1). That sum is at most the product of the two norms (Cauchy and Schwarz), which cost no
second product. An output that is written in bfloat16 is rounded once more, by 2^-8 of itself.

Worked number: K = 1024: gamma is 1.9e-5, the norms are 1 and 32, so an output of order 1 may be off by 6.1e-4. One of
the 1024 products left out shows as about 0.03, an output times 1.05 as 0.05.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Part, Split
from pytest_npubench.extensions.pairs.partition.number_formats import ROUNDOFF
from pytest_npubench.extensions.pairs.partition.unit import UnitPair

LAMBDA = 10.0  # a chance of 4e-22 a product; an operator has some 1e11 of them
UNIT_ROUNDOFF = 2.0**-24


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactProduct:
    """What an operator's output has to be: its product [rows, tokens] in float64, and how far each entry may be off."""

    matmul: Matmul
    product: NDArray[np.float64]
    tolerance: NDArray[np.float64]

    def check(self, split: Split, output: NDArray[np.float32]) -> None:
        """Raises MeasurementError where an entry is off, or was not written, with the unit that had to compute it."""
        wrong = ~(np.abs(output - self.product) <= self.tolerance)
        if reasons := [self._reason(part, output, wrong) for part in split.parts if wrong[_entries(part)].any()]:
            matmul = self.matmul
            operator = f"{matmul.name} [{matmul.rows}, {matmul.cols}] x {matmul.tokens}"
            raise MeasurementError(f"{split.strategy} of {operator} computes something else: {'; '.join(reasons)}")

    def _reason(self, part: Part, output: NDArray[np.float32], wrong: NDArray[np.bool_]) -> str:
        """Returns the entry of a part that is furthest off, in words."""
        entries = _entries(part)
        distance = np.where(wrong[entries], np.nan_to_num(np.abs(output - self.product)[entries], nan=np.inf), -1.0)
        row, token = np.unravel_index(distance.argmax(), distance.shape)
        at = part.first_row + row, part.first_token + token
        return (
            f"{wrong[entries].sum()} of the {part.unit}'s {distance.size} outputs are wrong, such as {output[at]:.6g}"
            f" in row {at[0]} of token {at[1]}, where float64 has {self.product[at]:.6g} +- {self.tolerance[at]:.2g}"
        )


def exact_product(pair: UnitPair, matmul: Matmul) -> ExactProduct:
    """By the operands of a loaded operator, as the pair holds them now."""
    weight, activation = (operand.astype(np.float64) for operand in pair.operands(matmul))
    norms = np.outer(np.linalg.norm(weight, axis=1), np.linalg.norm(activation, axis=0))
    summing, product = LAMBDA * matmul.cols**0.5 * UNIT_ROUNDOFF * norms, weight @ activation
    writing = ROUNDOFF[matmul.dtype] * (np.abs(product) + summing)
    return ExactProduct(matmul=matmul, product=product, tolerance=summing + writing)


def check_split_computes(pair: UnitPair, exact: ExactProduct, split: Split) -> None:
    """Run a loaded split by every mechanism of the pair on a spoiled output. Raises as ExactProduct.check."""
    for mechanism in _mechanisms(pair, split):
        pair.spoil_output(exact.matmul)
        pair.run(exact.matmul, split, mechanism=mechanism)
        exact.check(split, pair.output(exact.matmul))


def _mechanisms(pair: UnitPair, split: Split) -> Iterable[str]:
    """A split that makes its graphs in each run is run once: that takes as long as their compiling."""
    return pair.mechanisms[:1] if split.prepares_online else pair.mechanisms


def _entries(part: Part) -> Any:
    """Returns the index of the part's outputs in [rows, tokens]."""
    return (
        slice(part.first_row, part.first_row + part.num_rows),
        slice(part.first_token, part.first_token + part.num_tokens),
    )

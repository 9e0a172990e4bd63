"""Chooses how to run an operator: the split that the latency model says is fastest (HeteroInfer, section 4.4).

Every split of every strategy is priced, so nothing is faster by the model; of equal ones the first strategy's stands.

Worked number: Table 3, [4096, 4096] x 1 token: GPU 511 us, NPU 693 us. Rows 1:1 end at 346 us; with 50 us of
synchronisation 396 us, with 400 us of it 746 us, and then the GPU alone is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.latency import LatencyModel, SplitPrediction
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, Split, check_split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions, ratio_text
from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile
from pytest_npubench.extensions.pairs.partition.strategies import solver_names, strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One split and its price."""

    split: Split
    prediction: SplitPrediction

    @property
    def strategy(self) -> str:
        return self.split.strategy

    @property
    def predicted_s(self) -> float:
        return self.prediction.total_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do with an operator. alternatives: every split priced, the fastest first, the chosen one among them.
    left_out: why a strategy has none, by name."""

    matmul: Matmul
    mechanism: str
    chosen: Alternative
    alternatives: tuple[Alternative, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def split(self) -> Split:
        return self.chosen.split

    @property
    def strategy(self) -> str:
        return self.split.strategy

    @property
    def predicted_s(self) -> float:
        return self.chosen.predicted_s

    @property
    def whole(self) -> Split:
        """Returns the whole operator on the unit that is priced the faster one. Raises StopIteration where neither is
        priced."""
        return next(priced.split for priced in self.alternatives if len(priced.split.units) == 1)

    @property
    def best_of_each(self) -> tuple[Alternative, ...]:
        """Returns the fastest split of each strategy, the fastest strategy first."""
        first: dict[str, Alternative] = {}
        for alternative in self.alternatives:
            first.setdefault(alternative.strategy, alternative)
        return tuple(first.values())

    def explain(self) -> str:
        """Returns the choice, then a line for each other strategy: how much slower its best split is, or why it has
        none."""
        matmul, chosen = self.matmul, self.chosen
        lines = [
            f"{matmul.name} [{matmul.rows}, {matmul.cols}] x {matmul.tokens}: {self.strategy}"
            f" {split_text(matmul, self.split)}, {_time(self.predicted_s)}"
            f" ({_terms(chosen.prediction)}; sync by {self.mechanism})"
        ]
        for other in self.best_of_each:
            if other.strategy != self.strategy:
                slower = other.predicted_s / self.predicted_s - 1
                lines.append(
                    f"  why not {other.strategy}: {slower:+.0%}, {_time(other.predicted_s)} with"
                    f" {split_text(matmul, other.split)}"
                )
        lines += [f"  why not {name}: {reason}" for name, reason in self.left_out]
        return "\n".join(lines)


def solve(
    profile: PartitionProfile,
    matmul: Matmul,
    *,
    strategies: Sequence[str] | None = None,
    mechanism: str | None = None,
    options: SplitOptions | None = None,
) -> Decision:
    """Returns the fastest split by the profile. strategies None: all that are no baselines; mechanism None: the
    fastest; options None: the profile's.

    Raises RegistryError for an unknown strategy, PartitionError for an operator of no rows, columns or tokens, a
    mechanism that was not measured, and where no split can be priced, with the reasons.
    """
    if min(matmul.rows, matmul.cols, matmul.tokens) < 1:
        raise PartitionError(f"{matmul}: want 1 or more rows, columns and tokens")
    model, sync = LatencyModel(profile), profile.sync(mechanism)
    priced: list[Alternative] = []
    left_out: list[tuple[str, str]] = []
    for name in solver_names() if strategies is None else strategies:
        alternatives, reason = _priced(model, matmul, name, options or profile.options, sync.mechanism)
        priced += alternatives
        if not alternatives:
            left_out.append((name, reason))
    if not priced:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out)
        raise PartitionError(f"{matmul.name} [{matmul.rows}, {matmul.cols}] x {matmul.tokens}: no split: {reasons}")
    priced.sort(key=lambda alternative: alternative.predicted_s)
    return Decision(
        matmul=matmul,
        mechanism=sync.mechanism,
        chosen=priced[0],
        alternatives=tuple(priced),
        left_out=tuple(left_out),
    )


def _priced(
    model: LatencyModel, matmul: Matmul, name: str, options: SplitOptions, mechanism: str
) -> tuple[list[Alternative], str]:
    """What the profile can price, and why there is nothing where there is nothing."""
    alternatives: list[Alternative] = []
    reason = "it has no split of this operator and length"
    for split in strategy(name).splits(matmul, options):
        check_split(matmul, split)
        try:
            alternatives.append(Alternative(split=split, prediction=model.predict(matmul, split, mechanism)))
        except PartitionError as error:
            reason = str(error)
    return alternatives, reason


def split_text(matmul: Matmul, split: Split) -> str:
    """Who does what, in few words: "rows 2:3", "tokens 44 : 256", "all on gpu", "all on npu as 256+64"."""
    graphs = "+".join(str(part.padded_tokens) for part in split.of(NPU))
    if not split.of(GPU):
        return f"all on npu as {graphs}"
    if not split.of(NPU):
        return "all on gpu"
    gpu = split.of(GPU)[0]
    if gpu.num_rows == matmul.rows:
        return f"tokens {sum(part.num_tokens for part in split.of(GPU))} : {graphs}"
    padded = f", npu padded to {graphs}" if sum(p.padded_tokens for p in split.of(NPU)) != matmul.tokens else ""
    return f"rows {ratio_text(gpu.num_rows / matmul.rows)} ({gpu.num_rows}:{matmul.rows - gpu.num_rows}){padded}"


def _terms(prediction: SplitPrediction) -> str:
    named = {
        "gpu": prediction.gpu_s,
        "npu": prediction.npu_s,
        "sync": prediction.sync_s,
        "copy": prediction.copy_s,
        "graph": prediction.compile_s,
    }
    return ", ".join(f"{name} {_time(value)}" for name, value in named.items() if value)


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 0.01 else f"{seconds * 1e3:.1f} ms"

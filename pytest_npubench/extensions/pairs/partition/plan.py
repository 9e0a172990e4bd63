"""A plan: what to do with each operator of a model at each length, for reading and for an engine to load.

Worked number: llama-8b has seven operators; lengths 1 and 256 make a plan of 14 decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, Split
from pytest_npubench.extensions.pairs.partition.model_shapes import OperatorShape
from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile
from pytest_npubench.extensions.pairs.partition.solver import Decision, solve, split_text

if TYPE_CHECKING:
    from pytest_npubench.core.plain_table import PlainTable

FORMAT = "npubench-partition-plan"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSplits:
    """decisions: operator by operator, each by length. left_out: (operator, tokens, why) of what cannot be priced."""

    model: str
    decisions: tuple[Decision, ...]
    left_out: tuple[tuple[str, int, str], ...] = ()

    def decision(self, operator: str, tokens: int) -> Decision:
        """Raises PartitionError with the operators and lengths that are there."""
        for decision in self.decisions:
            if (decision.matmul.name, decision.matmul.tokens) == (operator, tokens):
                return decision
        there = ", ".join(f"{decision.matmul.name} x {decision.matmul.tokens}" for decision in self.decisions)
        raise PartitionError(f"the plan of {self.model} has no {operator} x {tokens}; it has {there or 'nothing'}")

    def to_json(self) -> dict[str, Any]:
        """What json.dumps takes: the parts of each chosen split, in seconds and rows and tokens."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "decisions": [_decision(decision) for decision in self.decisions],
            "left_out": [
                {"operator": name, "tokens": tokens, "reason": reason} for name, tokens, reason in self.left_out
            ],
        }

    def table(self) -> PlainTable:
        """Operators and lengths down, the choice and what it gains over the better single unit across."""
        from pytest_npubench.core.plain_table import PlainTable

        columns = ("operator", "weight", "tokens", "strategy", "split", "predicted", "gain")
        table = PlainTable(*columns, box=None)
        for decision in self.decisions:
            matmul = decision.matmul
            table.add_row(
                matmul.name,
                f"[{matmul.rows}, {matmul.cols}]",
                str(matmul.tokens),
                decision.strategy,
                split_text(matmul, decision.split),
                f"{decision.predicted_s * 1e3:.3f} ms",
                _gain(decision),
            )
        for name, tokens, reason in self.left_out:
            table.add_row(name, "", str(tokens), "none", reason, "", "")
        return table


def make_plan(
    profile: PartitionProfile,
    model: str,
    shapes: Iterable[OperatorShape],
    lengths: Sequence[int],
    *,
    strategies: Sequence[str] | None = None,
    mechanism: str | None = None,
) -> ModelSplits:
    """Solve every operator at every length. What the profile cannot price is left out, with the reason.

    Raises RegistryError and PartitionError as solver.solve for strategies and mechanism, PartitionError for lengths
    below 1 or none, and where nothing at all can be priced.
    """
    if not lengths or min(lengths) < 1:
        raise PartitionError(f"lengths {tuple(lengths)}; want one or more, each 1 token or more")
    profile.sync(mechanism)
    decisions, left_out = [], []
    for shape in shapes:
        for tokens in lengths:
            try:
                decisions.append(solve(profile, shape.matmul(tokens), strategies=strategies, mechanism=mechanism))
            except PartitionError as error:
                left_out.append((shape.name, tokens, str(error)))
    if not decisions:
        raise PartitionError(f"the profile does not know {model}: {left_out[0][2] if left_out else 'no operators'}")
    return ModelSplits(model=model, decisions=tuple(decisions), left_out=tuple(left_out))


def lengths_of(profile: PartitionProfile) -> tuple[int, ...]:
    """Returns the token counts that both units were measured at together, else those of the GPU alone."""
    together = {item.tokens for item in profile.slowdowns}
    return tuple(sorted(together or {item.tokens for item in profile.latencies if item.unit == GPU}))


def single_unit_s(decision: Decision) -> float | None:
    """Returns the better of the units alone, as predicted; None where neither was priced."""
    alone = [item.predicted_s for item in decision.alternatives if len(item.split.units) == 1]
    return min(alone, default=None)


def _gain(decision: Decision) -> str:
    alone_s = single_unit_s(decision)
    return f"x{alone_s / decision.predicted_s:.2f}" if alone_s is not None else "unknown"


def _decision(decision: Decision) -> dict[str, Any]:
    matmul, prediction = decision.matmul, decision.chosen.prediction
    return {
        "operator": matmul.name,
        "rows": matmul.rows,
        "cols": matmul.cols,
        "tokens": matmul.tokens,
        "strategy": decision.strategy,
        "mechanism": decision.mechanism,
        "parts": _parts(decision.split),
        "predicted": asdict(prediction),
        "single_unit_s": single_unit_s(decision),
    }


def _parts(split: Split) -> list[dict[str, Any]]:
    return [asdict(part) for part in split.parts]

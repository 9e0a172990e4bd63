"""What one check of an engine's answers leaves in a round: answers, pairs, and how far it is from the reference.

Numbers have 6 significant digits: rounding of float32 moves an answer by more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pytest_npubench.campaign.visits import Columns, Visit
from pytest_npubench.errors import MeasurementError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pytest_npubench.engines.answer_reference import AnswerReference
    from pytest_npubench.engines.answers import Answers, Logits

AGREE, DIFFER = "agree/", "differ/"  # columns
NO_PAIR = -1.0
CLEAR_LEAD = 16.0  # roundings: a greedy token that leads by less may be another one
Pairs = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerVisit(Visit):
    """`logits` of all positions, prompt by prompt, and the prompts' lengths. The last positions of each are the steps
    inside of it, at the places `middles`, prompt by prompt. `errors` are the distances from the
    reference at the positions of the prompts that have one. rounding and largest_rounding: what rounding alone does to
    them. `agree` and `differ`: by the pairs' name a distance for each prompt, NO_PAIR where it has none. `wrong_tokens`
    are the numbers of greedy tokens that are not the reference's, of each prompt that has one. weights_bits and
    made_bits: checksums of the device's weights and of the host's."""

    logits: tuple[float, ...]
    lengths: tuple[int, ...]
    errors: tuple[float, ...]
    rounding: float
    largest_rounding: float
    agree: Pairs
    differ: Pairs
    wrong_tokens: tuple[int, ...] = ()
    weights_bits: int | None = None
    made_bits: int | None = None
    middles: tuple[int, ...] = ()

    signed: ClassVar[bool] = True

    def columns(self) -> Columns:
        bits = {"weights_bits": self.weights_bits, "made_bits": self.made_bits}
        return {
            "logits": self.logits,
            "lengths": tuple(map(float, self.lengths)),
            **({"errors": self.errors} if self.errors else {}),
            **({"wrong_tokens": tuple(map(float, self.wrong_tokens))} if self.wrong_tokens else {}),
            **({"middles": tuple(map(float, self.middles))} if self.middles else {}),
            "rounding": (self.rounding,),
            "largest_rounding": (self.largest_rounding,),
            **{f"{AGREE}{name}": apart for name, apart in self.agree.items()},
            **{f"{DIFFER}{name}": apart for name, apart in self.differ.items()},
            **{name: (float(value),) for name, value in bits.items() if value is not None},
        }

    @classmethod
    def of_columns(cls, columns: Columns) -> tuple[AnswerVisit, ...]:
        """Returns the last check, where a round has several. Raises MeasurementError where columns are missing."""

        def pairs(prefix: str) -> Pairs:
            return {
                name.removeprefix(prefix): tuple(values) for name, values in columns.items() if name.startswith(prefix)
            }

        def whole(name: str) -> int | None:
            return int(columns[name][-1]) if name in columns else None

        try:
            return (
                cls(
                    logits=tuple(columns["logits"]),
                    lengths=tuple(map(int, columns["lengths"])),
                    errors=tuple(columns.get("errors", ())),
                    rounding=columns["rounding"][-1],
                    largest_rounding=columns["largest_rounding"][-1],
                    agree=pairs(AGREE),
                    differ=pairs(DIFFER),
                    wrong_tokens=tuple(map(int, columns.get("wrong_tokens", ()))),
                    weights_bits=whole("weights_bits"),
                    made_bits=whole("made_bits"),
                    middles=tuple(map(int, columns.get("middles", ()))),
                ),
            )
        except KeyError as error:
            raise MeasurementError(f"answers of another version: no column {error}") from None

    @property
    def num_positions(self) -> int:
        """Returns the number of positions of each prompt."""
        from pytest_npubench.engines.probe import NUM_FIXED

        return len(self.logits) // (len(self.lengths) * NUM_FIXED)


def answer_visit(answers: Answers, reference: AnswerReference) -> AnswerVisit:
    """Raises MeasurementError where an answer is no number, or where all logits of one are alike."""
    import numpy as np

    from pytest_npubench.engines.answers import distances

    logits = answers.logits
    _check(logits, "answers")
    if answers.timed is not None:
        _check(answers.timed, "answers on the weights that are timed")
    referenced = logits[: reference.num_prompts]
    wrong: tuple[int, ...] = ()
    if answers.tokens is not None:
        differing = answers.tokens[: reference.num_prompts] != reference.tokens
        wrong = tuple((differing & (reference.leads > CLEAR_LEAD * reference.rounding)).sum(axis=1).tolist())
    return AnswerVisit(
        logits=_digits(logits),
        lengths=answers.prompts.lengths,
        errors=_digits(distances(referenced, reference.logits)),
        rounding=reference.rounding,
        largest_rounding=reference.largest,
        agree={name: _digits(np.nan_to_num(apart, nan=NO_PAIR)) for name, apart in answers.agree.items()},
        differ={name: _digits(np.nan_to_num(apart, nan=NO_PAIR)) for name, apart in answers.differ.items()},
        wrong_tokens=wrong,
        weights_bits=answers.weights_bits,
        made_bits=answers.made_bits,
        middles=tuple(place for places in answers.prompts.middles for place in places),
    )


def _check(logits: Logits, what: str) -> None:
    """Raises MeasurementError where a logit is no number, or all logits of a position are equal."""
    import numpy as np

    from pytest_npubench.engines.answers import check_finite

    check_finite(logits, what)
    silent = np.asarray(np.ptp(logits, axis=-1) == 0)
    if silent.any():
        where = f"{int(silent.sum())} of {silent.size} positions"
        raise MeasurementError(f"{what} say nothing: all logits are alike at {where}")


def _digits(values: npt.NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values.ravel())

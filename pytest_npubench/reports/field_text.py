"""What the name of a detail's field says of its values: in words what they are, their unit, and their texts.

A name ends in its unit: "ttft_mean_s", "weight_bytes", "bubble_fraction", "expert_load_bytes_per_request". A field is
told by its path, the names that lead to it; where the last name has no unit, that of the name before it counts.

Worked example: Field.of(("handover", "mean_s")) is called "handover mean" and has the unit "s". Its values 0.003 and
0.0041 are "3" and "4.1" under the heading "handover mean, ms".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_npubench.reports import number_text

Path = tuple[str, ...]

SCALES: dict[str, tuple[tuple[str, float], ...]] = {
    "s": tuple((scale.name, scale.factor) for scale in number_text.SCALES["s"]),
    "bytes": tuple((scale.name, scale.factor) for scale in number_text.SCALES["B"]),
    "flops": (("TFLOP", 1e-12), ("GFLOP", 1e-9), ("MFLOP", 1e-6), ("FLOP", 1.0)),
    "fraction": (("%", 100.0),),
    "j": (("J", 1.0),),
    "mj": (("mJ", 1.0),),
    "w": (("W", 1.0),),
    "tokens": (("tokens", 1.0),),
    "requests": (("requests", 1.0),),
    "": (("", 1.0),),
}
"""The units that a name can end in, each with the ones that it is printed in, the largest first, and their factors."""
MEASURED = frozenset(SCALES) - {"tokens", "requests", ""}
"""Units of what was measured. Of the others whole numbers are counts and settings."""
ALONE = {"seconds": "time", "flops": "rate", "j": "energy", "mj": "energy", "w": "power", "fraction": "fraction"}
"""What a field is called whose name is nothing but a unit."""
CAPITALS = frozenset(("ttft", "tbt", "tpot", "e2e", "slo", "gpu", "npu", "cpu", "kv", "cv"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """`label` is the name in words without its unit, `per` what the unit is divided by, empty where by nothing."""

    label: str
    unit: str
    per: str = ""

    @classmethod
    def of(cls, path: Path) -> Field:
        parts = [_split(name) for name in path]
        unit, per = next(((unit, per) for _, unit, per in reversed(parts) if unit or per), ("", ""))
        return cls(label=" ".join(filter(None, (words(name) for name, _, _ in parts))), unit=unit, per=per)

    def scale(self, values: Iterable[Any]) -> tuple[str, float]:
        """The unit that these values are printed in, the largest in which one of them is 1 or more, and its factor."""
        largest = max((abs(value) for value in values if is_number(value)), default=0.0)
        choices = SCALES[self.unit]
        return next((choice for choice in choices if largest * choice[1] >= 1), choices[-1] if largest else choices[0])

    def unit_text(self, unit: str) -> str:
        """ "GB/request" of the unit "GB"."""
        return f"{unit or '1'}/{words(self.per)}" if self.per else unit

    def heading(self, unit: str) -> str:
        """ "expert load, GB/request": the label with the unit that its values are printed in."""
        return ", ".join(filter(None, (self.label, self.unit_text(unit))))


def words(name: str) -> str:
    """ "npu_order" is "NPU order", "num_trips" is "trips"."""
    return " ".join(
        word.upper() if word in CAPITALS else word for word in name.removeprefix("num_").replace("_", " ").split(" ")
    )


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def text(value: Any, factor: float = 1.0, *, is_interval: bool = False) -> str:
    """A number times the factor in four significant digits, "yes" and "no", a dash where nothing is known; of a list
    its items, and of an interval "0.9 to 1.1"."""
    if value is None or value == "":
        return number_text.UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if is_number(value):
        return number_text.plain(value * factor)
    if isinstance(value, list):
        between = " to " if is_interval and len(value) == 2 else "; " if any(map(_is_list, value)) else ", "
        return between.join(text(item, factor, is_interval=is_interval) for item in value) or number_text.UNKNOWN
    return str(value)


def texts(values: Sequence[Any], factor: float = 1.0, *, is_interval: bool = False) -> list[str]:
    return [text(value, factor, is_interval=is_interval) for value in values]


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _split(name: str) -> tuple[str, str, str]:
    """The name without its unit, the unit, and what that is divided by."""
    before, _, per = name.partition("_per_")
    if "_" in per and per.rpartition("_")[2] in MEASURED:  # "std_per_request_s" is a time
        before, per = name, ""
    if before.startswith("num_"):
        return name, "", ""
    first, _, last = before.rpartition("_")
    if last == "seconds":
        return first or ALONE[last], "s", per
    if last in SCALES and (first or per or last in MEASURED):
        return first or ALONE.get(last, last), last, per
    return before, "", per

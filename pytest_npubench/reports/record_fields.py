"""Reading the fields of journal records for display: what is absent or of an unexpected type is unknown, never a crash.

A journal promises few fields (docs/formats.md), and other writers or later versions may leave out or add the rest.

Worked example: number({"error": 0.02}, "error") == 0.02, and number({"error": "?"}, "error") is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]
LARGEST = 1e300  # of numbers up to this, sums and milliseconds are finite too
MEASURED_FOR = {"pruning": "shadow_outlier", "contention": "out_of_order"}
"""Cases of the offload suite whose campaign has the name of another."""


def as_number(value: object) -> float | None:
    """A number that can be reckoned with; None for anything else, truth values included."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) <= LARGEST else None  # a NaN compares false


def number(record: Record, name: str) -> float | None:
    return as_number(record.get(name))


def numbers(record: Record, name: str) -> tuple[float, ...]:
    """The finite numbers of a list, in its order; empty where there is no list."""
    return finite(record.get(name))


def finite(values: object) -> tuple[float, ...]:
    items = values if isinstance(values, (list, tuple)) else ()
    return tuple(item for item in map(as_number, items) if item is not None)


def text(record: Record, name: str) -> str:
    """The field as text, empty where it is absent or null."""
    value = record.get(name)
    return "" if value is None else str(value)


def table(record: Record, name: str) -> Record:
    """The field where it is an object, else an empty one."""
    value = record.get(name)
    return value if isinstance(value, Mapping) else {}


def suite_of(record: Record) -> str:
    """The suite of a case, the head of its key suite/kind/id; empty where the key has another form."""
    parts = text(record, "case").split("/", 2)
    return parts[0] if len(parts) == 3 else ""


def kind_of(record: Record) -> str:
    """The kind of a case, the middle of its key suite/kind/id; empty where the key has another form."""
    parts = text(record, "case").split("/", 2)
    return parts[1] if len(parts) == 3 else ""


def is_scheduling(record: Record) -> bool:
    """Of the suite whose campaigns serve requests; all others time points of their own."""
    return suite_of(record) == "scheduling"


def what_of(record: Record) -> str:
    """What a case timed; of one on a pair of units that timed nothing its kind, which its id does not tell."""
    is_pair = suite_of(record) in ("partition", "offload")
    return text(record, "what") or (kind_of(record).replace("_", " ") if is_pair else "")


def campaign_key(record: Record) -> str:
    """The key of the campaign that measured a case: hardware-model-bN, of scheduling hardware-model-serving, of the
    suites on a pair of units hardware-model-partition and hardware-offload-EXPERIMENT; on vLLM with -vllm behind it."""
    suite, hardware, model = suite_of(record), text(record, "hardware"), text(record, "model")
    if suite == "offload":
        return f"{hardware}-offload-{MEASURED_FOR.get(kind_of(record), kind_of(record))}"
    ends = {"scheduling": "serving", "partition": "partition"}
    engine = "-vllm" if table(record, "detail").get("engine") == "vllm" else ""
    return f"{hardware}-{model}-{ends.get(suite) or 'b' + text(record, 'batch_size')}{engine}"

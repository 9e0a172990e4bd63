"""Compiles that a vLLM log reports. One after warm-up makes a campaign's samples invalid: a request waited for
it (process.num_late_compiles).

vLLM on TPU logs each program ("Compilation of backbone finished in 3.20 [secs]."), on CUDA the capture of graphs and
the compile of a range of lengths. On TPU, VLLM_XLA_CHECK_RECOMPILATION=1 makes the server itself refuse late ones.

Worked example: warm-up's last line is the 40th; "Compilation of backbone finished in 3.20 [secs]." stands in line 57:
one late compile of 3.2 s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_npubench.errors import MeasurementError

WARM_UP_ENDS = "init engine (profile, create kv cache, warmup model) took"
"""vLLM's engine core logs this once, when it has compiled and captured all that it means to."""

_COMPILES = (
    re.compile(r"Compilation(?: of (?P<name>.+?))? finished in (?P<seconds>[\d.]+) \[secs\]"),
    re.compile(r"(?P<name>Graph capturing) finished in (?P<seconds>[\d.]+) secs"),
    re.compile(r"(?P<name>Compiling a graph for compile range .+?) takes (?P<seconds>[\d.]+) s"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compile:
    """A program that was compiled, or a graph captured, by line `line` of the log (from 1). name "": it has none."""

    name: str
    compile_s: float
    line: int


def compiles_in_log(lines: Iterable[str]) -> tuple[Compile, ...]:
    """Every compile and graph capture that a log reports as finished, in order."""
    found = []
    for number, line in enumerate(lines, start=1):
        match = next(filter(None, (pattern.search(line) for pattern in _COMPILES)), None)
        if match:
            found.append(Compile(name=match["name"] or "", compile_s=float(match["seconds"]), line=number))
    return tuple(found)


def late_compiles(lines: Iterable[str], *, warm_up_ends: str = WARM_UP_ENDS) -> tuple[Compile, ...]:
    """The compiles behind the line that ends warm-up. Raises MeasurementError where no line says that it ended."""
    kept = tuple(lines)
    end = next((number for number, line in enumerate(kept, start=1) if warm_up_ends in line), None)
    if end is None:
        raise MeasurementError(
            f"the log of {len(kept)} lines has none with {warm_up_ends!r}; want one, to know its end"
        )
    return tuple(one for one in compiles_in_log(kept) if one.line > end)

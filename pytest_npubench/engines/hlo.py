"""The text of a compiled module: what its instructions cost by the compiler's own estimate, and what they copy.

A sum over the text would count the body of a loop once and what is fused into an instruction twice. Here the entry
computation is walked: a loop's body counts as often as it runs, of branches the dearest, a fusion by its own estimate.

Worked example: an entry with a fusion of 100 cycles and a loop of 16 trips over a body of 10 has 260.

A product with one row becomes a loop of multiplications and sums on the vector unit. Its cycles are added up once more,
with the bytes that it reads and writes: the compiler overprices these loops (engines/binary_estimate.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_NAME = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
_OPERAND = re.compile(r"\s*[a-z][\w\-]*\(%?([\w.\-]+)")
_ARRAY = re.compile(r"\b([a-z]+\d*(?:e\dm\d\w*)?)\[([\d,]*)\]")
_CYCLES = re.compile(r'"estimated_cycles":"(\d{1,18})"')  # libtpu writes 2^63 - 1, of 19 digits, where it has none
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CALLED = re.compile(
    r"\b(?:body|condition|to_apply|true_computation|false_computation|called_computations)=%?([\w.\-]+)"
)
_CALLS = re.compile(r"\bcalls=%?([\w.\-]+)")
_OPERANDS = re.compile(r"%([\w.\-]+)")
_FUSED = re.compile(r"\bkind=kLoop, calls=%?([\w.\-]+)")
_PRODUCT = re.compile(r'op_name="[^"]*dot_general')
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_BITS = {"pred": 8, "bf16": 16}
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
COPIES = ("copy", "transpose")
NAMING = ("parameter", "get-tuple-element", "tuple", "bitcast", "reshape", "while", "conditional", "call")
FETCHES = ("copy-start", "copy-done", "slice-start", "slice-done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One line: what it does, the arrays (type, dimensions) of its result, and the rest of the text."""

    name: str
    opcode: str
    results: tuple[tuple[str, tuple[int, ...]], ...]
    text: str

    @property
    def cycles(self) -> int:
        """Returns the compiler's estimate; 0 where it has none."""
        match = _CYCLES.search(self.text)
        return int(match[1]) if match else 0

    @property
    def num_bytes(self) -> float:
        """Returns the bytes of the results; where an operation begins, whose results hold its operands too, of the
        last."""
        counted = self.results[-1:] if self.opcode.endswith("-start") else self.results
        return sum(_bytes_of(kind) * math.prod(dims) for kind, dims in counted)

    @property
    def is_kernel(self) -> bool:
        return self.opcode == "custom-call" and 'custom_call_target="tpu_custom_call"' in self.text

    @property
    def collective(self) -> str | None:
        """Which collective it begins or is."""
        name = self.opcode.removesuffix("-start")
        return name if name in COLLECTIVES else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Cycles, kernel calls, collectives and their bytes, with loops run; loops of unknown length count once.
    vector_cycles: of the cycles, those of products on the vector unit; vector_bytes: what these read and write."""

    cycles: float = 0
    kernels: float = 0
    collectives: float = 0
    collective_bytes: float = 0
    unknown_loops: float = 0
    vector_cycles: float = 0
    vector_bytes: float = 0

    def __add__(self, other: Total) -> Total:
        return Total(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})

    def times(self, number: int) -> Total:
        return Total(**{name: getattr(self, name) * number for name in self.__slots__})


@dataclass(frozen=True)
class Module:
    """The computations of a module by name, and which of them is its entry."""

    computations: Mapping[str, Sequence[Instruction]]
    entry: str
    _totals: dict[str, Total] = field(default_factory=dict)

    @cached_property
    def total(self) -> Total:
        """Returns the total of a run of the module."""
        return self._total(self.entry)

    def copies(
        self, num_elements: int, *, length: int | None = None, of_arguments: bool = False, written: bool = False
    ) -> tuple[Instruction, ...]:
        """What copies, or lays out anew, an array of so many elements that is no weight, inside fusions too; only one
        with a dimension of that length, where it is given: a share of a weight may have as many elements as a cache.
        Only what does so to an argument of its computation, where of_arguments; where written, only what leaves its
        kernel: on a GPU a fusion reads in any order for nothing, and the argument is then the module's own.

        A TPU's copy-start is none of them: it fetches into on-chip memory what is about to be read.
        """
        return tuple(
            one
            for name, instructions in self.computations.items()
            for one in instructions
            if one.opcode in COPIES
            and any(math.prod(dims) == num_elements and length in (None, *dims) for _, dims in one.results)
            and 'op_name="weights[' not in one.text
            and (not of_arguments or _reads_argument(one, instructions))
            and (not written or self._is_written(one, name, num_elements, of_arguments))
        )

    def made(self, num_elements: int) -> tuple[Instruction, ...]:
        """What makes an array of so many elements, whatever way: not what only names, passes or reshapes one, nor what
        fetches a part of a larger one into on-chip memory (slice-start), as copy-start does a whole."""
        return tuple(
            one
            for instructions in self.computations.values()
            for one in instructions
            if one.opcode not in (*NAMING, *FETCHES) and any(math.prod(dims) == num_elements for _, dims in one.results)
        )

    @cached_property
    def _fusions(self) -> Mapping[str, tuple[Instruction, str]]:
        """Each fusion and the computation it is in, by the name of the computation that it calls."""
        calls = ((_CALLS.search(op.text), op, name) for name, body in self.computations.items() for op in body)
        return {call[1]: (op, name) for call, op, name in calls if call and op.opcode == "fusion"}

    def _is_written(self, instruction: Instruction, name: str, num_elements: int, of_arguments: bool) -> bool:
        """Whether every fusion around it has a result of so many elements, and it reads an argument of the entry."""
        operand = _OPERAND.match(instruction.text)
        read = _parameter(operand[1], self.computations[name]) if operand and of_arguments else None
        while name in self._fusions:
            fusion, name = self._fusions[name]
            if all(math.prod(dims) != num_elements for _, dims in fusion.results):
                return False
            number = _OPERAND.match(read.text) if read else None
            operands = _OPERANDS.findall(fusion.text.partition(")")[0])
            read = _parameter(operands[int(number[1])], self.computations[name]) if number else None
        return not of_arguments or (read is not None and name == self.entry)

    def _total(self, name: str) -> Total:
        if name not in self._totals:
            self._totals[name] = sum((self._of(one) for one in self.computations.get(name, ())), Total())
        return self._totals[name]

    def _of(self, op: Instruction) -> Total:
        total = Total(
            cycles=op.cycles,
            kernels=float(op.is_kernel),
            collectives=float(op.collective is not None),
            collective_bytes=op.num_bytes if op.collective else 0,
        )
        if op.opcode == "while":
            trips = _TRIPS.search(op.text)
            body = sum((self._total(name) for name in _CALLED.findall(op.text)), Total())
            return total + (body.times(int(trips[1])) if trips else body + Total(unknown_loops=1))
        if op.opcode == "conditional":
            names = [
                name.strip().lstrip("%") for name in ",".join(_BRANCHES.findall(op.text)).split(",") if name.strip()
            ]
            branches = [self._total(name) for name in names or _CALLED.findall(op.text)]
            return total + max(branches, key=lambda branch: branch.cycles, default=Total())
        if op.opcode in ("call", "async-start"):
            return total + sum((self._total(name) for name in _CALLED.findall(op.text)), Total())
        if op.opcode == "fusion" and (fused := self._vector_product(op)):
            read = sum(each.num_bytes for each in fused if each.opcode == "parameter")
            return total + Total(vector_cycles=op.cycles, vector_bytes=read + op.num_bytes)
        return total

    def _vector_product(self, instruction: Instruction) -> Sequence[Instruction]:
        """What is fused into it, where that is a product by multiplications and sums; else nothing."""
        called = _FUSED.search(instruction.text) if _PRODUCT.search(instruction.text) else None
        fused = self.computations.get(called[1], ()) if called else ()
        return fused if {"multiply", "reduce"} <= {each.opcode for each in fused} else ()


def _reads_argument(instruction: Instruction, among: Sequence[Instruction]) -> bool:
    operand = _OPERAND.match(instruction.text)
    return operand is not None and _parameter(operand[1], among) is not None


def _parameter(name: str, among: Sequence[Instruction]) -> Instruction | None:
    """Returns the parameter that stands behind this name, seen through changes of shape alone; None where none does."""
    source = next((one for one in among if one.name == name), None)
    while source is not None and source.opcode in ("bitcast", "reshape"):
        operand = _OPERAND.match(source.text)
        source = next((one for one in among if operand and one.name == operand[1]), None)
    return source if source is not None and source.opcode == "parameter" else None


def parse(text: str) -> Module:
    """Raises ValueError for a text without an entry computation."""
    computations: dict[str, list[Instruction]] = {}
    entry, current = None, None
    for line in text.splitlines():
        if head := _HEAD.match(line):
            current = computations.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif current is not None and (instruction := _instruction(line)) is not None:
            current.append(instruction)
    if entry is None:
        raise ValueError("a module without an entry computation")
    return Module(computations=computations, entry=entry)


def _instruction(line: str) -> Instruction | None:
    name = _NAME.match(line)
    if name is None:
        return None
    shape, rest = _shape_and_rest(line[name.end() :])
    opcode = _OPCODE.match(rest)
    if opcode is None:
        return None
    results = tuple((kind, tuple(map(int, filter(None, dims.split(","))))) for kind, dims in _ARRAY.findall(shape))
    return Instruction(name=name[1], opcode=opcode[1], results=results, text=rest)


def _shape_and_rest(text: str) -> tuple[str, str]:
    """Returns the result's shape, in brackets where it is a tuple, and what follows it."""
    if not text.startswith("("):
        shape, _, rest = text.partition(" ")
        return shape, rest
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[: index + 1], text[index + 1 :]
    return text, ""


def _bytes_of(kind: str) -> float:
    """Returns the bytes of one element."""
    if kind in _BITS:
        return _BITS[kind] / 8
    digits = re.search(r"\d+", kind)
    return int(digits[0]) / 8 if digits else 0

"""A pair whose units live in a process of their own: what the opening process sees of it (UnitPair).

Messages go over a socket and are small; results are read from the shared arena. The opening process is neither pinned
nor does it import torch or jax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.errors import RegistryError
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.number_formats import bf16_bits, decoded
from pytest_npubench.extensions.pairs.partition.unit import SplitTiming, UnitFacts
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.processes.child import Child, hosted


class HostPair:
    """UnitPair by a child process, in which `runtime`, a module's open_units(arguments), makes the units.

    timeout_s: a call that takes longer counts as hung, and the pair is ended.
    """

    def __init__(self, runtime: str, arguments: Mapping[str, Any], *, name: str, timeout_s: float = 120.0) -> None:
        self.name = name
        self._arena = SharedArena()
        # the child's own waits end first, so that the message names the unit that hangs and not the process around it
        handed = {**arguments, "arena_fd": self._arena.fd, "timeout_s": timeout_s}
        self._child: Child | None = None
        try:
            self._child = hosted(
                f"{runtime}:open_units",
                handed,
                name=f"pair {name}",
                fds=(self._arena.fd,),
                timeout_s=timeout_s * 1.5,
            )
            self._child.started()
            self._facts: dict[str, Any] = self._child.call("facts")
        except BaseException:
            self.close()
            raise

    @property
    def gpu(self) -> UnitFacts:
        facts: UnitFacts = self._facts["gpu"]
        return facts

    @property
    def npu(self) -> UnitFacts:
        facts: UnitFacts = self._facts["npu"]
        return facts

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return tuple(self._facts["mechanisms"])

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids by the unit's short name."""
        return dict(self._facts["pids"])

    def load(self, matmul: Matmul, splits: Sequence[Split]) -> Mapping[tuple[int, int, int], float]:
        compiled: dict[tuple[int, int, int], float] = self.call("load", matmul, tuple(splits))
        return compiled

    def run(self, matmul: Matmul, split: Split, *, mechanism: str | None = None) -> SplitTiming:
        self._check(mechanism)
        timing: SplitTiming = self.call("run", matmul, split, mechanism)
        return timing

    def run_chain(
        self, matmul: Matmul, split: Split, num_times: int, *, mechanism: str
    ) -> tuple[float, tuple[SplitTiming, ...]]:
        """Runs the split num_times, each after the one before is whole. Returns seconds of all, and each timing."""
        self._check(mechanism)
        total_s, each = self.call("run_chain", matmul, split, num_times, mechanism)
        return total_s, each

    def run_queued(self, matmul: Matmul, split: Split, num_times: int) -> SplitTiming:
        """Runs the split's parts num_times without waiting in between, in one submission."""
        timing: SplitTiming = self.call("run_queued", matmul, split, num_times)
        return timing

    def output(self, matmul: Matmul) -> NDArray[np.float32]:
        return decoded(self._arena.view(self.call("output_name", matmul)))

    def spoil_output(self, matmul: Matmul) -> None:
        output = self._arena.view(self.call("output_name", matmul))
        output[...] = np.nan if output.dtype == np.float32 else bf16_bits(np.array(np.nan, np.float32))

    def operands(self, matmul: Matmul) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Copies of weight [rows, cols] and activation [cols, tokens], as the numbers that their bits stand for."""
        weight, activation, scales = (name and self._arena.view(name) for name in self.call("operand_names", matmul))
        return decoded(weight, scales), decoded(activation[: matmul.tokens]).T

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        self._check(mechanism)
        return tuple(self.call("round_trips_s", mechanism, num_trips))

    def stream_bytes_per_s(self, units: Sequence[str], num_bytes: int) -> Mapping[str, float]:
        rates: dict[str, float] = self.call("stream_bytes_per_s", tuple(units), num_bytes)
        return rates

    def call(self, method: str, *arguments: object, **keywords: Any) -> Any:
        """One method of the units in the child, for what goes beyond UnitPair (a decoder layer)."""
        assert self._child is not None
        return self._child.call(method, *arguments, **keywords)

    def view(self, name: str) -> NDArray[Any]:
        """Returns a copy of a named array of the arena."""
        return np.array(self._arena.view(name))

    def evict(self) -> None:
        self.call("evict")

    def unload(self) -> None:
        self.call("unload")

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
        self._arena.close()

    def _check(self, mechanism: str | None) -> None:
        if mechanism is not None and mechanism not in self.mechanisms:
            raise RegistryError(
                f"pair {self.name} has no synchronisation {mechanism!r}; it has {', '.join(self.mechanisms)}"
            )

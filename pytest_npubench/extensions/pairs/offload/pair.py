"""An experiment on a real pair of units, from outside: this process is neither pinned nor imports torch or jax.

with OffloadPair(ShadowSettings()) as pair:
    pair.load()
    pair.measure("shadow/serial/8 outliers").total_s
"""

from __future__ import annotations

import os

from pytest_npubench.extensions.pairs.offload.experiments import name_of
from pytest_npubench.extensions.pairs.offload.units import Figures
from pytest_npubench.extensions.pairs.partition.units.cores import two_cores
from pytest_npubench.processes.child import hosted

TIMEOUT_S = 300.0


class OffloadPair:
    """The dynamic unit on cores[0], the static one on cores[1]; None: the last two cores this process may use.

    Raises DeviceUnavailableError with fewer than two cores, where pinning is refused, or without torch or jax. Every
    method raises UnitLostError where a unit died or gives no answer within timeout_s, with its last words, and the
    named errors of the experiment itself.
    """

    def __init__(self, settings: object, *, cores: tuple[int, int] | None = None, timeout_s: float = TIMEOUT_S) -> None:
        name = name_of(settings)
        self.cores = two_cores(cores)
        self._host = hosted(
            "pytest_npubench.extensions.pairs.offload.host:OffloadHost",
            {"cores": self.cores, "spare_cores": sorted(os.sched_getaffinity(0) - set(self.cores))},
            name=f"dynamic unit of the {name} experiment on core {self.cores[0]}",
            timeout_s=timeout_s,
        )
        try:
            self._host.started()
            self._host.call("open", settings)
        except BaseException:
            self.close()
            raise

    def load(self) -> None:
        """Make the arrays, compile the graphs."""
        self._host.call("load")

    def measure(self, name: str) -> Figures:
        """Visit a point once: its figures, of the experiment's class. Raises RegistryError for a name of no point."""
        figures: Figures = self._host.call("measure", name)
        return figures

    def close(self) -> None:
        """End both units; may be called twice."""
        self._host.close()

    def __enter__(self) -> OffloadPair:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

"""Compiles the graphs of a campaign in processes of their own, as the binaries of other compilers are."""

from __future__ import annotations

from typing import Any

from pytest_npubench.campaign.visits import Visit
from pytest_npubench.extensions.compilers.buckets.bench import CompilerBench
from pytest_npubench.extensions.compilers.buckets.plan import BinaryPoint
from pytest_npubench.extensions.compilers.htp.plan import HtpPlan, HtpPoint, HtpVisit
from pytest_npubench.extensions.compilers.qnn.compiler import htp_process
from pytest_npubench.processes.child import Child


class HtpBench(CompilerBench):
    def sample(self, point: BinaryPoint, round_index: int) -> Visit:
        _, facts = self._facts[point.name]
        return HtpVisit.of(facts)

    def is_alone(self, point: BinaryPoint) -> bool:
        """A whole decoder: its compiler takes six times the weights."""
        assert isinstance(self._plan, HtpPlan)  # the service made it
        return point == self._plan.whole

    def _request(self, point: BinaryPoint) -> Any:
        assert isinstance(self._plan, HtpPlan)
        assert isinstance(point, HtpPoint)  # its plan's
        return self._plan.graph(point)

    def _process(self) -> Child:
        return htp_process(self._runtime.topology, self._memory_bytes)

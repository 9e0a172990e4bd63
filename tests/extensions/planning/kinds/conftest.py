"""Plans, workloads and benches are those of the core's tests."""

from __future__ import annotations

from campaign.conftest import plan, workloads
from campaign.serving.conftest import make_bench, measure

__all__ = ["make_bench", "measure", "plan", "workloads"]

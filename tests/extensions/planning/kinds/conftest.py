"""Plans, workloads, benches and engines are those of the core's tests."""

from __future__ import annotations

from campaign.conftest import plan, workloads
from campaign.serving.conftest import make_bench, measure
from engines.conftest import runtime, serve

__all__ = ["make_bench", "measure", "plan", "runtime", "serve", "workloads"]

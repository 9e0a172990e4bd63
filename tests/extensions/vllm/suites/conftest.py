"""A bucket plan and workloads are those of the core's tests."""

from __future__ import annotations

from campaign.conftest import plan, workloads

__all__ = ["plan", "workloads"]

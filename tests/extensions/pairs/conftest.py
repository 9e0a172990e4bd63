"""The stand-in of AI Hub is that of its engine's tests."""

from __future__ import annotations

from engines.aihub.conftest import hub

__all__ = ["hub"]

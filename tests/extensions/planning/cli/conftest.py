"""The command line is called here as in the core's tests."""

from __future__ import annotations

from cli.conftest import call, journal, wide

__all__ = ["call", "journal", "wide"]

"""Every SVG is marked with the figure that it was drawn of, as in the core's tests."""

from __future__ import annotations

from reports.conftest import drawn_figures

__all__ = ["drawn_figures"]

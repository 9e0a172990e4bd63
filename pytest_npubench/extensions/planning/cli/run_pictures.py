"""The page of a simulation and that of a search, which need the report extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_npubench.errors import ConfigError

if TYPE_CHECKING:
    from pytest_npubench.serving.metrics import RequestRecord


def picture_text(
    answer: Mapping[str, Any], served: Mapping[str, Sequence[RequestRecord]], facts: Sequence[tuple[str, str]]
) -> str:
    """A page. Raises ConfigError without the report extra."""
    try:
        from pytest_npubench.extensions.planning.report.simulation_page import simulation_page
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install pytest-npubench[report]") from error
    return simulation_page(answer, served, facts)


def search_picture_text(rows: Sequence[Mapping[str, Any]], num_settings: int, sought: str) -> str:
    """A page. Raises ConfigError without the report extra."""
    try:
        from pytest_npubench.extensions.planning.report.search_page import search_page
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install pytest-npubench[report]") from error
    return search_page(rows, num_settings, sought)

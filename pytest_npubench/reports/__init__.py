"""What people read: a table in the terminal, an HTML page. Both take the case records of a journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_npubench.errors import ConfigError


@contextmanager
def report_extra() -> Iterator[None]:
    """What imports the makers of pages stands in its block. Raises ConfigError where the extra is not installed."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install pytest-npubench[report]") from error

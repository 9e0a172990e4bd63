"""What a test of the user's own is: the limits and the size of its marker, and the case that it stands for."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pytest

from pytest_npubench.core.case import Case
from pytest_npubench.errors import ConfigError
from pytest_npubench.plugin.items import DEVICES, NODE_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class CallableLimits:
    """What the npubench marker says: samples to take, calls to warm up with at most, calls in a sample (None: as many
    as the clock needs), limits in seconds."""

    rounds: int = 30
    warmup: int = 20
    iterations: int | None = None
    max_mean_s: float | None = None
    max_median_s: float | None = None

    @classmethod
    def from_pytest_item(cls, item: pytest.Item) -> CallableLimits:
        """The nearest marker wins, keyword by keyword. Raises ConfigError naming an unknown keyword or wrong value."""
        given: dict[str, Any] = {}
        keywords = {field.name for field in fields(cls)}
        for marker in reversed(list(item.iter_markers("npubench"))):
            if marker.args or not marker.kwargs.keys() <= keywords:
                wrong = ", ".join(sorted(marker.kwargs.keys() - keywords)) or "a positional argument"
                raise ConfigError(
                    f"{item.nodeid}: marker npubench does not take {wrong}; allowed: {', '.join(sorted(keywords))}"
                )
            given |= marker.kwargs
        limits = cls(**given)
        for name, least in (("rounds", 1), ("warmup", 2), ("iterations", 1)):
            value = getattr(limits, name)
            if name in given and (type(value) is not int or value < least):
                raise ConfigError(f"{item.nodeid}: marker npubench: {name} = {value!r}; want an integer >= {least}")
        for name in ("max_mean_s", "max_median_s"):
            value = getattr(limits, name)
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise ConfigError(f"{item.nodeid}: marker npubench: {name} = {value!r}; want seconds above 0")
        return limits


def own_case(item: pytest.Item, hardware: str, limits: CallableLimits) -> tuple[Case, str]:
    """The case of a user's test on hardware of that name, and its digest. A number of calls in a sample belongs to the
    digest where it is fixed, and not where the clock chose it.

    A fixed number of calls in a sample is another measurement; one that was found is the clock's affair.
    """
    device = item.stash[DEVICES][0]
    case = Case(
        suite="own",
        kind="callable",
        hardware=hardware,
        family=device.family,
        model="callable",
        batch_size=1,
        axes=(("test", item.stash[NODE_ID]),),
    )
    return case, case.digest(None if limits.iterations is None else {"iterations": limits.iterations})

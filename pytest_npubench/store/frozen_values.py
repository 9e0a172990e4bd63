"""What the first accepted session of a case fixed for all later ones: numbers by name, such as a rate or a limit.

A gate whose limit comes from the run that it judges is none: on a device 4 times slower the limit is 4 times wider. So
the case's record says what it was held to (`frozen`), its first acceptance keeps that, and later runs look it up.

Worked example: the first accepted night measured {"rate_per_s": 0.44}; later nights say what they were run at, and 0.44
stays until the case is reset or measures something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from pytest_npubench.core.record_reader import JSON, WrongEntryError
from pytest_npubench.store.json_fields import Time, check_sum, verify_sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """The values, at least one, and the session that they were taken from, with the time it was accepted."""

    session: str
    accepted_at: Time
    values: Mapping[str, float]

    def __post_init__(self) -> None:
        """Raises WrongEntryError where there is no value."""
        if not self.values:
            raise WrongEntryError("values", "empty; want at least one")

    @property
    def age(self) -> tuple[datetime, str]:
        """The least of several is the one that was first."""
        return datetime.fromisoformat(self.accepted_at), self.session

    def to_json(self, case: str, digest: str) -> dict[str, Any]:
        return {**self._fields(), "check": check_sum([case, digest, self._fields()])}

    @classmethod
    def from_json(cls, content: Any, place: str, case: str, digest: str) -> Frozen:
        """Raises WrongEntryError naming the place, JsonError where the check sum does not fit."""
        read = JSON.record(cls, content, place, others=("check",))
        verify_sum(content, place, [case, digest, read._fields()])
        return read

    def _fields(self) -> Any:
        return msgspec.to_builtins(self)

"""A case: one row of a suite. Its id and digest hold no machine state, so they are equal on every machine.

Worked example: Case(suite="buckets", kind="profile", hardware="cpu", family="cpu", model="tiny", batch_size=4,
axes=(("bucket", 128),)).id == "cpu-tiny-b4-bucket128"
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import PurePath

ANSWERS = "answers"
"""The kind of the cases that say what a model answers, in every suite that has them."""
Axes = tuple[tuple[str, int | str], ...]
"""A suite's own parameters of a case, by name, in their declared order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One parametrised case of a suite; `axes` are the suite's own parameters in their declared order."""

    suite: str
    kind: str
    hardware: str
    family: str
    model: str
    batch_size: int
    axes: Axes = ()

    @property
    def id(self) -> str:
        """Returns the parameter id in pytest, and the key of a baseline: hardware-model-bN-axes."""
        tail = [f"{name}{value}" if isinstance(value, int) else value for name, value in self._shared_axes]
        return "-".join([self.hardware, self.model, f"b{self.batch_size}", *tail])

    @property
    def _shared_axes(self) -> Axes:
        """The axes as every machine has them: of a file's absolute path (a workload's) its name alone."""
        return tuple(
            (name, PurePath(value).name if isinstance(value, str) and PurePath(value).is_absolute() else value)
            for name, value in self.axes
        )

    @property
    def key(self) -> str:
        """Returns the id with its suite and kind: unique over all suites."""
        return f"{self.suite}/{self.kind}/{self.id}"

    def axis(self, name: str) -> int | str:
        """Returns the value of one of the suite's own parameters. Raises KeyError when the case has none of that
        name."""
        return dict(self.axes)[name]

    def digest(self, settings: object = None) -> str:
        """Returns a hash of what is measured: the case and the settings (JSON-able) that change its meaning. 12 hex
        digits."""
        body = [self.suite, self.kind, self.hardware, self.model, self.batch_size, self._shared_axes, settings]
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def is_answers(key: str) -> bool:
    """Whether the case of that key says what a model answers."""
    return key.split("/")[1:2] == [ANSWERS]


def campaign_of(key: str) -> str:
    """Returns the name that the cases of one suite, hardware, model and batch size share, read from a case's key; a key
    of another form is its own campaign. "buckets/profile/cpu-tiny-b4-bucket128" gives "buckets/cpu-tiny-b4"."""
    match = re.fullmatch(r"([^/]+)/[^/]+/(.+?-b\d+)(-.*)?", key)
    return f"{match[1]}/{match[2]}" if match else key

"""One night: where it lies, and what each of its steps did.

Steps may be processes of their own, so what they hand on lies in OUT/night.json, in the work tree. OUT also gets
what people look at: report.html, journal.jsonl (this night's sessions alone), junit.xml, pytest.log, summary.md, and
the baselines that the night was judged by.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_npubench.core.documents import json_value
from pytest_npubench.core.regular_file import SMALL_BYTES, read_text, replace_text
from pytest_npubench.errors import NightlyError
from pytest_npubench.nightly.state import StateFolder

RECORD = "night.json"
OF_PYTEST = {"report.html", "junit.xml"}
"""What pytest writes: that of a killed night may end after the work tree was cleaned, and make the folder anew."""
STEPS = ("restore", "lock", "measure", "promote", "upload", "site")
OUTCOMES = ("done", "warning", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step did: done, warning (something to look at) or failed (the night is not green), and why, in words.

    `lines` are sentences for people, the first one the most important; `facts` is plain data for later steps.
    """

    name: str
    outcome: str
    lines: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.outcome in OUTCOMES
        assert self.lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The folders of a night, as absolute paths. `name` is the runner's share of the work, which state folder and topic
    branch are named after: the device family, or one host of several."""

    name: str
    work: Path
    out: Path
    state: StateFolder

    @property
    def baselines(self) -> Path:
        return self.out / "baselines"

    def begin(self) -> None:
        """An empty folder for this night. Raises NightlyError where it holds what no night left there; OSError."""
        if self.out.is_dir():
            if {path.name for path in self.out.iterdir()} - OF_PYTEST and not (self.out / RECORD).exists():
                raise NightlyError(
                    f"{self.out}: is not a night's folder (it has no {RECORD}); want a new one for --output"
                )
            shutil.rmtree(self.out)
        self.out.mkdir(parents=True)
        replace_text(self.out / RECORD, "{}\n")

    def steps(self) -> dict[str, Step]:
        """The steps done so far, by name. Raises NightlyError where no night was begun."""
        path = self.out / RECORD
        try:
            content = json_value(read_text(path, SMALL_BYTES))
            return {
                name: Step(name=name, outcome=one["outcome"], lines=tuple(one["lines"]), facts=one["facts"])
                for name, one in content.items()
            }
        except FileNotFoundError:
            raise NightlyError(f"{path}: no night was begun here; run `npubench nightly restore` first") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NightlyError(f"{path}: cannot be read ({error}); run `npubench nightly restore` again") from None

    def record(self, step: Step) -> Step:
        """Keep what a step did. Raises NightlyError and OSError."""
        steps = {**self.steps(), step.name: step}
        content = {name: {**asdict(replace(one, facts=dict(one.facts)))} for name, one in steps.items()}
        replace_text(self.out / RECORD, json.dumps(content, indent=1) + "\n")
        return step

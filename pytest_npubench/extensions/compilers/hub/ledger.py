"""Job ids on disk, so that a killed run picks its jobs up again and pays for none twice.

One JSON file a campaign and device, rewritten whole beside itself, synced and renamed: a kill leaves the old or the new
one. An entry is written *before* its job is submitted, with the job's name, which is unique: a run that was killed
between asking and noting the id finds the job by that name.

    intended   about to be submitted; whether it was is known by its name alone
    submitted  its id is known
    failed     ended without a result, with the reason; a next run submits anew
    settled    its result is part of a measurement: never counted a second time
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pytest_npubench.core.documents import json_value
from pytest_npubench.core.record_reader import JSON
from pytest_npubench.core.regular_file import SMALL_BYTES, read_text, replace_text
from pytest_npubench.errors import FormatVersionError, StoreError

FORMAT = 1
STATES = ("intended", "submitted", "failed", "settled")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEntry:
    """One job. submitted_at_s is seconds since the epoch, as job timeouts outlive a process."""

    kind: str
    name: str
    state: str
    submitted_at_s: float
    job_id: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"state {self.state!r}; want one of {', '.join(STATES)}")


class JobLedger:
    """The file. Raises StoreError naming it where it cannot be read or written, FormatVersionError on a later one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._jobs: dict[str, JobEntry] = {}
        self._models: dict[str, str] = {}
        if path.exists():
            self._read()

    def job(self, key: str) -> JobEntry | None:
        return self._jobs.get(key)

    def put(self, key: str, entry: JobEntry) -> None:
        """Add or replace an entry; on disk when this returns."""
        self._jobs[key] = entry
        self._write()

    def change(self, key: str, **values: Any) -> None:
        self.put(key, replace(self._jobs[key], **values))

    def settle(self, keys: Iterable[str]) -> None:
        """Mark results as used, all at once."""
        for key in keys:
            self._jobs[key] = replace(self._jobs[key], state="settled")
        self._write()

    def model(self, digest: str) -> str | None:
        """Returns the id under which a graph was uploaded whole."""
        return self._models.get(digest)

    def put_model(self, digest: str, model_id: str) -> None:
        self._models[digest] = model_id
        self._write()

    def forget_model(self, digest: str) -> None:
        self._models.pop(digest, None)
        self._write()

    def _read(self) -> None:
        try:
            document = json_value(read_text(self.path, SMALL_BYTES))
            self._check_format(document)
            self._jobs = JSON.value(Mapping[str, JobEntry], document["jobs"], "jobs")
            self._models = JSON.value(Mapping[str, str], document["models"], "models")
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{self.path}: not a file of AI Hub jobs: {error}; move it away to start anew") from None

    def _check_format(self, document: Mapping[str, Any]) -> None:
        if document["format"] > FORMAT:
            raise FormatVersionError(f"{self.path}: format {document['format']}; this version knows up to {FORMAT}")

    def _write(self) -> None:
        text = json.dumps(
            {
                "format": FORMAT,
                "jobs": {key: asdict(entry) for key, entry in self._jobs.items()},
                "models": self._models,
            },
            indent=1,
        )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(self.path, text + "\n")
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written: {error.strerror}") from error

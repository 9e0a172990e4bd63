"""What the history hands out: plain records, free of the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_npubench.store.fingerprint import Fingerprint, FingerprintKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """What an upload did. Of num_sessions in the journal some were new, some had grown, the others were there.

    num_cases and num_metrics count the rows written for new and grown sessions.
    """

    num_sessions: int
    num_new_sessions: int
    num_grown_sessions: int
    num_cases: int
    num_metrics: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One session: started_at in ISO 8601, UTC; exit_status None where it still runs or was killed.

    verdicts maps a verdict kind to its number of cases; keys are those of the devices that its cases ran on.
    """

    session: str
    started_at: str
    host: str | None
    worker: str | None
    git_revision: str | None
    exit_status: int | None
    settings: Mapping[str, object]
    verdicts: Mapping[str, int]
    keys: tuple[FingerprintKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestCase:
    """The newest record of a case on one device of a hardware file on a host, invalid ones too. device_class is None
    where no device answered."""

    case: str
    hardware: str
    host: str | None
    device: str
    device_class: str | None
    started_at: str
    verdict: str
    reason: str | None

    @property
    def suite(self) -> str:
        return self.case.partition("/")[0]

    @property
    def device_row(self) -> tuple[str, str]:
        """Names the hardware file and the host."""
        return self.hardware, self.host or "unknown host"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRow:
    """One metric of a case in one session on one device. value is the metric's own figure in `unit`, to the last bit
    that of the journal: a mean or a median, as its suite estimates it. samples are the raw values behind it, none where
    it is derived; better is "lower" or "higher".

    gate and margin are those of result.Metric. processes are the samples of each process that measured it, this row's
    first, or the value alone. fingerprint is the whole of what measured it, None where the history does not hold it.
    `compared` is the kind of the metric's own verdict, None where it was not compared, with `since` and alarms_among as
    of Verdict; is_partly_disturbed as of Judgement."""

    session: str
    started_at: str
    host: str | None
    git_revision: str | None
    hardware: str
    key: FingerprintKey
    device: str
    case: str
    digest: str
    verdict: str
    metric: str
    unit: str
    better: str
    value: float
    median: float
    """The median of the samples, the value where there are none."""
    samples: tuple[float, ...]
    gate: str
    margin: float | None
    processes: tuple[tuple[float, ...], ...]
    fingerprint: Fingerprint | None
    compared: str | None
    since: str | None
    alarms_among: float | None
    is_partly_disturbed: bool

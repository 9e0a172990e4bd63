"""The offload part of a hardware file: on which pair of units llm.npu's techniques run, and how long. A profile that is
not named does nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pytest_npubench.core.hardware import RunLength, known_profiles
from pytest_npubench.core.record_reader import Text, Texts, key, within
from pytest_npubench.extensions.pairs.suites.offload import SUITE


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSize(RunLength):
    """What a profile runs."""

    experiments: Annotated[Texts, within(SUITE.kinds)] = SUITE.kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSpec:
    """On which pair llm.npu's techniques run."""

    pair: Text
    profiles: Annotated[tuple[OffloadSize, ...], known_profiles] = field(metadata=key("profile"))

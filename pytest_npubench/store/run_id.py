"""The names of sessions and runs, and how a run is given its own by who starts it."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone

RUN = "NPUBENCH_RUN"
"""In the environment of a run whose starter looks for its sessions afterwards: the run's id."""


def new_id() -> str:
    """When it began, and 32 random bits: 20261121T130500-3f9a1c07."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"

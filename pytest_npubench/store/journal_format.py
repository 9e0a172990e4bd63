"""The journal's format: the records, the fields each must have, and how a file is told to be a journal.

docs/formats.md shows a line of each kind and the history of the versions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_npubench.errors import FormatVersionError, JournalError
from pytest_npubench.store.json_text import JsonError, take

FORMAT = "npubench-journal"
VERSION = 1
HEAD = b'{"record":"session","format":"npubench-journal","version":'
HEAD_BYTES = len(HEAD) + 10  # with the version's digits

_TEXT = (str,)
_DEVICE = (str, type(None))  # a case that never reached a device has none

# what a reader may rely on; every record may have more fields, and there may be more kinds
REQUIRED: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "session": {"started_at": _TEXT, "worker": (str, type(None)), "host": (Mapping,), "settings": (Mapping,)},
    "device": {"digest": _TEXT, "fingerprint": (Mapping,)},
    "compile": {"fingerprint": _TEXT, "name": _TEXT, "compile_s": (int, float), "cache": _TEXT},
    "round": {"fingerprint": _TEXT, "campaign": _TEXT, "campaign_digest": _TEXT, "round": (int,), "points": (Mapping,)},
    "case": {
        "fingerprint": _DEVICE,
        "case": _TEXT,
        "id": _TEXT,
        "hardware": _TEXT,
        "digest": _TEXT,
        "verdict": (Mapping,),
    },
    "note": {"text": _TEXT},
    "torn": {"num_bytes": (int,)},
    "end": {"exit_status": (int,), "counts": (Mapping,)},
}


def check_record(record: Any) -> None:
    """Raises JsonError where a record lacks what its kind requires; an unknown kind needs only record and session."""
    kind = take(record, "record", _TEXT)
    take(record, "session", _TEXT)
    for name, kinds in REQUIRED.get(kind, {}).items():
        take(record, name, kinds)
    if kind == "case":
        take(record["verdict"], "kind", _TEXT, "verdict")


def check_session(path: Path, number: int, record: Mapping[str, Any]) -> None:
    """Raises FormatVersionError where the session on line `number` was written in a version that is not known."""
    form, version = take(record, "format", _TEXT), take(record, "version", (int,))
    if form != FORMAT:
        raise JsonError(f"format: want {FORMAT!r}, found {form!r}")
    if version != VERSION:
        raise FormatVersionError(f"journal {path} line {number}: {_version_text(version)}")


def check_head(path: Path, head: bytes) -> None:
    """Raises JournalError where a file does not begin as a journal does. An empty or torn beginning passes.

    Raises FormatVersionError where its first session was written in a version that is not known.
    """
    if not head.startswith(HEAD[: len(head)]):
        raise JournalError(f"{path} is not a journal: a journal begins with {HEAD.decode()}")
    version = re.match(rb"(\d{1,9})[,}]", head[len(HEAD) :])
    if version and int(version[1]) != VERSION:
        raise FormatVersionError(f"journal {path}: {_version_text(int(version[1]))}")


def _version_text(version: int) -> str:
    return f"written by format {version}; this version reads {VERSION}"

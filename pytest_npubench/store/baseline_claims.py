"""What no single baseline file shows: a case that two files claim under one key, a session under two names of a case.

Git can leave either: a hardware folder copied to another name, or the same session accepted before and after a
renaming. Both would count sessions twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pytest_npubench.errors import BaselineError
from pytest_npubench.store.aliases import FILE_NAME, Aliases
from pytest_npubench.store.baseline_format import BaselineFile
from pytest_npubench.store.fingerprint import FingerprintKey


def check_claims(directory: Path, files: Iterable[BaselineFile], aliases: Aliases) -> None:
    """Raises BaselineError naming both places."""
    cases: dict[tuple[FingerprintKey, str], Path] = {}
    sessions: dict[tuple[FingerprintKey, str, str], tuple[Path, str]] = {}
    for file in files:
        path = directory / file.relative_path
        for name, case in file.cases.items():
            other = cases.setdefault((file.key, name), path)
            if other != path:
                raise BaselineError(f"baseline {path}: cases.{name}: {other} holds this case under the same key")
            latest = aliases.latest_name(name)
            for session in case.sessions:
                claim = sessions.setdefault((file.key, latest, session.session), (path, name))
                if claim != (path, name):
                    raise BaselineError(
                        f"baseline {path}: cases.{name}: the session {session.session} stands under cases.{claim[1]} "
                        f"of {claim[0]} too, which is the same case by {FILE_NAME}"
                    )

"""A lock file: one line NAME==VERSION for every distribution that a device family's environment needs.

Runtime and compiler are part of the key that baselines stand under. An environment that is not locked gets a new jax
one night, every case becomes incomparable, and nothing is judged. So a night runs in the environment of the lock or not
at all, and another version comes by a reviewed change of the file.

A lock is made of what is installed: what pytest-npubench[EXTRAS] requires, what that requires, and so on. A build's own
label does not count: torch 2.13.0 in the file is 2.13.0+cpu installed.
"""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from pytest_npubench.core.entry_points import installed_version
from pytest_npubench.core.regular_file import SMALL_BYTES, read_text
from pytest_npubench.errors import NightlyError
from pytest_npubench.nightly.night import Night, Step
from pytest_npubench.store.fingerprint import LIBRARIES

OWN = "pytest-npubench"
NUM_NAMED = 5
PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*==\s*([^\s;#]+)\s*(?:;([^#]*))?(?:#.*)?")


def lock_text(extras: Sequence[str], options: Sequence[str] = ()) -> str:
    """A lock file of this environment. `options` are lines for pip, such as --extra-index-url ADDRESS.

    Raises NightlyError where something that is required is not installed.
    """
    pins = sorted(_closure(extras).items())
    python = ".".join(platform.python_version_tuple()[:2])
    named = ",".join(extras)
    shown = [*(f"--extra {extra}" for extra in extras), *(f"--pip-option {shlex.quote(line)}" for line in options)]
    head = [
        f"# What pytest-npubench[{named}] ran with: Python {python}, {platform.system()} {platform.machine()}.",
        "# Written by: npubench nightly lock --write FILE " + " ".join(shown),
    ]
    return "\n".join([*head, *options, *(f"{name}=={version}" for name, version in pins)]) + "\n"


def read_pins(path: Path) -> dict[str, str]:
    """Distribution -> version. Raises NightlyError naming file and line where a line pins nothing."""
    try:
        text = read_text(path, SMALL_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise NightlyError(f"lock file {path}: {getattr(error, 'strerror', None) or error}") from None
    pins: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith(("#", "-")):
            continue
        pin = PIN.fullmatch(line)
        if pin is None:
            raise NightlyError(
                f"lock file {path} line {number}: {line!r}: want NAME==VERSION, a pip option or a comment"
            )
        if pin[3] is None or _applies(pin[3], path, number):
            pins[canonicalize_name(pin[1])] = pin[2]
    if not pins:
        raise NightlyError(f"lock file {path}: pins nothing; write it by `npubench nightly lock --write {path}`")
    return pins


def differences(pins: Mapping[str, str], installed: Mapping[str, str | None]) -> tuple[str, ...]:
    """Texts "NAME LOCKED -> INSTALLED" of changed versions; libraries of the baselines' key come first."""
    lines = {
        name: f"{name} {version} -> {installed.get(name) or 'not installed'}"
        for name, version in pins.items()
        if not _same(version, installed.get(name))
    }
    return tuple(sorted(lines.values(), key=lambda text: (text.split()[0] not in LIBRARIES, text)))


def check_lock(night: Night, path: Path | None) -> Step:
    """The step: fails where the environment is another one than the lock's. Raises NightlyError for a lock file that
    cannot be used, OSError."""
    night.steps()
    if path is None:
        line = "the environment is not locked: a new version of anything may change the key over night"
        return night.record(Step(name="lock", outcome="warning", lines=(line,)))
    pins = read_pins(path)
    changed = differences(pins, {name: installed_version(name) for name in pins})
    if not changed:
        line = f"{len(pins)} distributions are those of {path.name}"
        return night.record(Step(name="lock", outcome="done", lines=(line,)))
    more = f" and {len(changed) - NUM_NAMED} more" if len(changed) > NUM_NAMED else ""
    line = (
        f"nothing is measured: the environment is not that of {path}: {', '.join(changed[:NUM_NAMED])}{more}; "
        f"install it by pip install --requirement {path}, or review a new lock file"
    )
    return night.record(Step(name="lock", outcome="failed", lines=(line,), facts={"differences": list(changed)}))


def _closure(extras: Sequence[str]) -> dict[str, str]:
    pins: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(OWN, extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        version = installed_version(name)
        if version is None:
            raise NightlyError(f"{name} is required and not installed: pip install '{OWN}[{','.join(extras)}]'")
        if name != OWN:
            pins[name] = version.partition("+")[0]
        offered = set(map(canonicalize_name, metadata.metadata(name).get_all("Provides-Extra") or ()))
        if name == OWN and extra and canonicalize_name(extra) not in offered:
            raise NightlyError(f"{OWN} has no extra {extra!r}; it has {', '.join(sorted(offered))}")
        waiting += _required(metadata.requires(name) or (), extra)
    return pins


def _required(lines: Iterable[str], extra: str) -> list[tuple[str, str]]:
    requirements: list[tuple[str, str]] = []
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None and extra:
            continue  # came with the distribution itself
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            name = canonicalize_name(requirement.name)
            requirements += [(name, extra_name) for extra_name in ("", *requirement.extras)]
    return requirements


def _same(locked: str, installed: str | None) -> bool:
    if installed is None:
        return False
    try:
        wanted, present = Version(locked), Version(installed)
    except InvalidVersion:
        return locked == installed
    return wanted == present if wanted.local else wanted.public == present.public


def _applies(marker: str, path: Path, number: int) -> bool:
    try:
        condition = Requirement(f"name; {marker.strip()}").marker
    except InvalidRequirement as error:
        raise NightlyError(f"lock file {path} line {number}: {error}") from None
    return condition is None or condition.evaluate()

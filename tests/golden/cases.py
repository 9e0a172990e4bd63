"""What must not change by moving code: every case's key and digest, and the campaign that measures it.

A key or digest that changes loses its accepted baselines, so a change here is meant or is a fault. After one that is
meant, `python tests/golden/cases.py` writes the record anew, and the change says so in CHANGELOG.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from pytest_npubench import suites
from pytest_npubench.core.hardware import PROFILES, HardwareSpec
from pytest_npubench.core.hardware_reader import default_directory, with_groups
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.suites.protocol import Choice

RECORD = Path(__file__).with_name("cases.json")
ENGINES = ("reference", "vllm")


def campaigns(profile: str, engine: str) -> dict[str, str]:
    """By campaign key: the number of its cases, and a hash of their keys, digests, limits and framework."""
    specs = with_groups(load_all([default_directory()]))
    found = (entry for spec in specs.values() for entry in _of(spec, Choice(profile=profile, engine=engine)))
    lines: dict[str, list[str]] = {}
    for key, line in found:
        lines.setdefault(key, []).append(line)
    return {
        key: f"{len(own)} {hashlib.sha256(json.dumps(sorted(own)).encode()).hexdigest()[:12]}"
        for key, own in sorted(lines.items())
    }


def _of(spec: HardwareSpec, choice: Choice) -> Iterator[tuple[str, str]]:
    for suite in map(suites.suite, suites.names()):
        for plan in suite.plans(spec, choice):
            for kind in (suite.kind(name) for name in suite.kinds if plan.includes(name)):
                for axes in kind.axes(plan):
                    case = plan.case(suite.name, kind.name, axes)
                    told = (case.key, case.digest(plan.settings), plan.framework, dict(plan.limits), spec.markers)
                    yield plan.key, json.dumps(told, sort_keys=True)


def main() -> None:
    record = {f"{profile} {engine}": campaigns(profile, engine) for profile in PROFILES for engine in ENGINES}
    RECORD.write_text(json.dumps(record, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

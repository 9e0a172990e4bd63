"""Sessions of the same suite on the same machine, night after night in fast motion: does the gate stay quiet, and does
it see a case that does more work?

    python benchmarks/soak.py --sessions 13 --planted 2 --folder soak

Every session is a fresh pytest that accepts itself where it is green; the first three have nothing to compare with.
The planted ones come last, with 10 % more work in the prefill steps of bucket 512, and must fail for that case alone.
Going on after an interruption: the same command again; sessions that are there are not run again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_npubench.store.journal import read_journal

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    arguments = _parser().parse_args()
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{index:02}" for index in range(arguments.sessions)]
    names += [f"planted-{index:02}" for index in range(arguments.planted)]
    alarms: Counter[str] = Counter()
    for name in names:
        journal = folder / f"{name}.jsonl"
        took_s = 0.0
        if not _is_whole(journal):
            started_s = time.monotonic()
            _run(name, journal, folder, arguments)
            took_s = time.monotonic() - started_s
        alarms["planted" if name.startswith("planted") else "A/A"] += _print_session(name, journal, took_s)
    print(
        f"regressed metrics: {alarms['A/A']} in {arguments.sessions} A/A sessions, {alarms['planted']} in planted ones"
    )


def _run(name: str, journal: Path, folder: Path, arguments: argparse.Namespace) -> None:
    journal.unlink(missing_ok=True)
    is_planted = name.startswith("planted")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "benchmarks")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "cpu", "suites/"]
    command += [f"--npubench-journal={journal}", f"--npubench-baselines={folder / 'baselines'}", "--benchmark-disable"]
    if is_planted:
        environment["NPUBENCH_PLANT"] = "512:0.10"
        command += ["-p", "plant"]
    else:
        command.append("--npubench-accept")
    log = (folder / f"{name}.txt").open("w", encoding="utf-8")
    with log:
        subprocess.run([*command, *arguments.rest], cwd=ROOT, env=environment, stdout=log, stderr=log, check=False)


def _is_whole(journal: Path) -> bool:
    return journal.exists() and any(session.end for session in read_journal(journal).sessions)


def _print_session(name: str, journal: Path, took_s: float) -> int:
    """One line a session and one a metric that alarms; returns how many did."""
    records = [record for record in read_journal(journal).records if record["record"] == "case"]
    cases = Counter(record["verdict"]["kind"] for record in records)
    metrics = [(record, metric, entry) for record in records for metric, entry in record["metrics"].items()]
    judged = [(record, metric, entry["verdict"]) for record, metric, entry in metrics if "verdict" in entry]
    kinds = Counter(verdict["kind"] for _, _, verdict in judged)
    again = sum("processes" in entry for _, _, entry in metrics)
    print(f"{name}: {took_s:4.0f} s, cases {_text(cases)}; metrics {_text(kinds)}; measured again {again}", flush=True)
    found = [line for line in map(_alarm, judged) if line]
    for record in records:
        if record["verdict"]["kind"] in ("failed", "invalid"):
            print(f"    {record['verdict']['kind']} {record['id']}: {record['verdict']['reason']}")
    print("".join(f"    {line}\n" for line in found), end="", flush=True)
    return len(found)


def _alarm(judged: tuple[Mapping[str, Any], str, Mapping[str, Any]]) -> str:
    record, metric, verdict = judged
    return f"{record['case']} {metric}: {verdict['reason']}" if verdict["kind"] == "regressed" else ""


def _text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())) or "none"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=13, help="A/A sessions (13)")
    parser.add_argument("--planted", type=int, default=2, help="sessions with a planted slow-down after them (2)")
    parser.add_argument("--folder", type=Path, default=Path("soak"), help="journals, logs and baselines (soak/)")
    parser.add_argument("rest", nargs="*", help="further arguments for pytest, after --")
    return parser


if __name__ == "__main__":
    main()

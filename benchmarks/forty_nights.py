"""Forty nights of a nightly against the truth: two scripted devices, two stacks, drivers, slow-downs and faults.

    python benchmarks/forty_nights.py                    # the table, as Markdown; 8 minutes of one core
    python benchmarks/forty_nights.py --json --seed 1    # other nights

Each night is `npubench nightly run` out of a fresh checkout with a bare git remote, on devices of benchmarks/forty that
are fake and whose truth is written down. What goes wrong beside the nights is a line each under the table. After them
`npubench ab` measures two environments of which one is slower in one case. Exit status: 1 where an unchanged case
alarmed, a case was lost, or a verdict is wrong that no noise explains.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from forty.play import Played, Stage, short
from forty.script import Night, expected, forty_nights
from forty.tally import table, tally

AB_SLOWER = {"near-b2-bucket32": 1.10}
AB_PAIRS = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=40, help="the first so many (40)")
    parser.add_argument("--seed", type=int, default=0, help="of the noise (0)")
    parser.add_argument("--noise", type=float, default=1.0, help="times the 0.4 %% between processes of nights (1)")
    parser.add_argument("--folder", type=Path, help="where everything stays (default: a temporary folder)")
    parser.add_argument("--no-ab", action="store_true", help="leave `npubench ab` out")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        arguments.folder.mkdir(parents=True)
        return _play(arguments.folder.absolute(), arguments)
    with tempfile.TemporaryDirectory(prefix="forty-nights-") as folder:
        return _play(Path(folder), arguments)


def _play(root: Path, arguments: argparse.Namespace) -> int:
    nights = forty_nights()[: arguments.nights]
    truths = list(expected(nights))
    stage = Stage(root=root, seed=arguments.seed, noise=arguments.noise)
    played: list[Played] = []
    started_s = time.monotonic()
    for one in stage.play(nights):
        played.append(one)
        said = f"night {one.number}, {one.night.title}: status {one.status}, {one.took_s:.0f} s"
        print(said, file=sys.stderr, flush=True)
    rows = tally(played, truths)
    ab = None if arguments.no_ab else _ab(stage)
    if arguments.json:
        print(json.dumps({"rows": [asdict(row) for row in rows.values()], "ab": ab}, indent=1))
    else:
        print(table(rows))
        for row in rows.values():
            for fault in row.faults:
                print(f"- {fault}")
        promised, found = (sum(getattr(row, name) for row in rows.values()) for name in ("num_promised", "num_found"))
        print(f"promised with a power of 0.8 or more: {promised}, of which found: {found}")
        print(f"npubench ab, {AB_PAIRS} pairs, +10 % in near-b2-bucket32: {ab}")
        print(f"{time.monotonic() - started_s:.0f} s")
    return int(any(row.alarms or row.wrong or row.lost or row.strays for row in rows.values()))


def _ab(stage: Stage) -> dict[str, str]:
    """Case -> verdict of its time per token, of two environments that differ in one case by 10 %."""
    runner = stage.runners["a"]
    runner.checkout()
    sides = []
    for name, factors in (("a", {}), ("b", AB_SLOWER)):
        night = stage.environment(Night(title="ab", factors=factors), 100, name)["SCRIPTED_NIGHT"]
        python = stage.root / f"python-{name}"
        python.write_text(f"#!/bin/sh\nSCRIPTED_NIGHT='{night}' exec {sys.executable} \"$@\"\n", encoding="utf-8")
        python.chmod(0o755)
        sides += [f"--env-{name}", str(python)]
    options = ("ab", *sides, "--pairs", str(AB_PAIRS), "--json", "--")
    select = (*runner.select, "-m", "openvino", "-k", "near and b2", "-p", "no:hypothesispytest")
    said = stage.npubench(*options, *select, folder=runner.work)
    if said.returncode not in (0, 1, 3):
        return {"error": said.stderr[-500:]}
    try:
        cases = json.loads(said.stdout)["cases"]
    except ValueError:
        return {"error": (said.stdout + said.stderr)[-500:]}
    return {short(one["case"]): one["verdict"] for one in cases if one["metric"] == "tbt_s"}


if __name__ == "__main__":
    sys.exit(main())

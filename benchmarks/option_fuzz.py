"""Every option of every npubench command with every strange value of tests/cli/option_fuzz.py: counts and findings.

    python benchmarks/option_fuzz.py              # all of it, as Markdown
    python benchmarks/option_fuzz.py simulate     # one command

All in one process with at most MEMORY_BYTES of memory, in a temporary folder. Exit status: 1 where there are findings.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from cli.option_fuzz import VALUES, Tally, commands, confined, fill, tried

MEMORY_BYTES = 6 * 2**30


def main() -> int:
    wanted = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    print("| command | options | tried | done | named errors | findings | s |")
    print("|---|---|---|---|---|---|---|")
    total = Tally()
    with tempfile.TemporaryDirectory(prefix="npubench-fuzz-") as outer:
        folder = Path(outer) / "a" / "b"
        folder.mkdir(parents=True)
        with confined(folder):
            fill(folder)
            for command in commands():
                if wanted and command.words[0] not in wanted:
                    continue
                tally, started_s = Tally(), time.monotonic()
                for action in command.actions:
                    for value in VALUES:
                        tried(command.line(action, value), tally)
                took_s = time.monotonic() - started_s
                counts = f"{tally.tried} | {tally.done} | {tally.named} | {len(tally.findings)}"
                print(f"| {' '.join(command.words)} | {len(command.actions)} | {counts} | {took_s:.0f} |", flush=True)
                for name in ("tried", "done", "named"):
                    setattr(total, name, getattr(total, name) + getattr(tally, name))
                total.findings += tally.findings
    print(f"\n{total}")
    for finding in total.findings:
        print(f"- {' '.join(word if len(word) < 60 else word[:57] + '...' for word in finding.line)!r}: {finding.what}")
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main())

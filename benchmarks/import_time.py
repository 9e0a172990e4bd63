"""What the installed plugin costs a pytest run that does not use it: its import, against pytest's own.

python benchmarks/import_time.py
"""

import statistics
import subprocess
import sys

REPEATS = 15
SCRIPT = """
import sys, time
started_s = time.perf_counter()
import pytest
pytest_s = time.perf_counter() - started_s
before = set(sys.modules)
started_s = time.perf_counter()
import pytest_npubench.plugin
plugin_s = time.perf_counter() - started_s
heavy = {"numpy", "scipy", "jax", "torch", "rich"} & (set(sys.modules) - before)
print(pytest_s, plugin_s, ",".join(sorted(heavy)) or "none")
"""


def main() -> None:
    rows = [
        subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(REPEATS)
    ]
    pytest_s, plugin_s = (statistics.median(float(row[column]) for row in rows) for column in (0, 1))
    print(f"plugin import: median {plugin_s * 1e3:.1f} ms of {REPEATS} processes (limit 15 ms)")
    print(f"against pytest's own import, {pytest_s * 1e3:.0f} ms: x{plugin_s / pytest_s:.3f}")
    print(f"heavy modules it imports: {rows[0][2]}")


if __name__ == "__main__":
    main()

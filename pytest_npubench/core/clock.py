"""The machine's own clocks, as they were when the plugin was imported.

A test may freeze time: freezegun puts clocks of its own into the module `time`, and wherever a module holds one of the
true ones by name; `monkeypatch.setattr(time, "perf_counter", ...)` does the first alone. A measurement must not
notice: 0.4 ms were 15.1 s. So every time that is measured is read here. These objects hold the true functions, and are
none of those that are looked for. plugin/__init__.py imports this file before any test can change anything.
"""

from __future__ import annotations

import time
from functools import partial

perf_counter = partial(time.perf_counter)
"""Seconds, for what took how long."""
monotonic = partial(time.monotonic)
"""Seconds, on Linux the same for all processes of a machine."""
wall_s = partial(time.time)
"""Seconds since 1970, which jump where somebody sets the machine's clock."""

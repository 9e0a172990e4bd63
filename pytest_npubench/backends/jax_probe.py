"""Which accelerators jax sees, asked in a process of its own: `jax.devices()` can hang, and holds a TPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from pytest_npubench.backends.protocol import Device, Probe
from pytest_npubench.processes import guarded

_QUESTION = """
import json, jax
from pytest_npubench.backends.cuda import identity
devices = jax.devices()
memory = lambda device: (device.memory_stats() or {}).get("bytes_limit")
named = lambda device: identity(device.local_hardware_id) if device.platform in ("gpu", "cuda") else (None, "")
print(json.dumps([[d.platform, d.device_kind, memory(d), *named(d)] for d in devices]))
"""
# takes nothing of a GPU, and reports all that it has: by default the limit that jax tells is three quarters of it
WHOLE_MEMORY = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": "1.0"}


def jax_missing(family: str) -> str:
    """Why jax cannot be used, empty where it can. Imports nothing."""
    return "" if find_spec("jax") else f"jax is not installed: pip install pytest-npubench[{family}]"


def probe_jax(family: str, title: str, platforms: Sequence[str], timeout_s: float) -> Probe:
    """The devices of one of these platforms, in jax's order."""
    if missing := jax_missing(family):
        return Probe(reason=missing)
    try:
        answer = guarded.run([sys.executable, "-c", _QUESTION], limit_s=timeout_s, env=os.environ | WHOLE_MEMORY)
    except subprocess.TimeoutExpired:
        return Probe(reason=f"no {title}: jax did not answer within {timeout_s:g} s (--npubench-probe-timeout)")
    except OSError as error:
        return Probe(reason=f"no {title}: jax could not be asked: {error}")
    if answer.returncode:
        return Probe(reason=f"no {title}: jax failed: {_last_line(answer.stderr)}")
    try:
        return _read(family, title, platforms, json.loads(_last_line(answer.stdout)))
    except (ValueError, TypeError):
        return Probe(reason=f"no {title}: jax gave no list of devices: {_last_line(answer.stdout)}")


def _read(family: str, title: str, platforms: Sequence[str], rows: list[Any]) -> Probe:
    devices = [row for platform, *row in rows if platform in platforms]
    if not devices:
        return Probe(reason=f"no {title}: jax found platforms {', '.join(sorted({row[0] for row in rows}))}")
    return Probe(
        devices=tuple(
            Device(family=family, ordinal=ordinal, name=name, memory_bytes=memory, uuid=uuid, unidentified=unidentified)
            for ordinal, (name, memory, uuid, unidentified) in enumerate(devices)
        )
    )


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"

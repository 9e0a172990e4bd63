"""`npubench hardware --new`: a hardware file for a device that no file describes.

The file is like the one that most others of the family are like. The device tells its name, its memory and, where its
driver does, its memory bandwidth; what only the maker says is asked for. Models, batch sizes and KV caches are those
that fit the device's memory by campaign/memory.py.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_npubench import backends, suites
from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.memory import fit, memory_room
from pytest_npubench.core.figures import BANDWIDTH_UNITS, FLOP_UNITS, Memory, Peak
from pytest_npubench.core.hardware import FAMILIES, SERVER, HardwareSpec
from pytest_npubench.core.record_reader import listed
from pytest_npubench.core.regular_file import replace_text
from pytest_npubench.errors import ConfigError
from pytest_npubench.suites.hardware_files import load_hardware
from pytest_npubench.suites.protocol import Choice
from pytest_npubench.suites.scheduling.memory import campaign_need
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.spec import ServingSpec

PROBE_TIMEOUT_S = 120.0
CACHE_STEP_TOKENS = 10_000
BY_DRIVER = "what the device's driver reports"
BY_HAND = "typed in when this file was written"
Ask = Callable[[str], str]


def write_hardware(path: Path, device_id: str | None, specs: Mapping[str, HardwareSpec], ask: Ask) -> HardwareSpec:
    """Writes a hardware file for a device that is here: the first that none of `specs` describes where `device_id` is
    None. `ask` answers a question with a line, which is empty where the answer is unknown. Raises ConfigError."""
    if path.suffix != ".toml" or path.stem in specs or path.exists():
        raise ConfigError(f"{path}: want a file NAME.toml that is not there yet, and a NAME of no shipped file")
    device = _device(device_id, specs)
    likes = Counter(spec.like or spec.name for spec in specs.values() if spec.family == device.family)
    base = specs[likes.most_common(1)[0][0]]
    fitted = fitted_entries(base, device.memory_bytes) if device.memory_bytes else {}
    tables = {
        "": f'title = {json.dumps(device.name)}\nlike = "{base.name}"' + ("\ngroup = false" if base.groups else ""),
        "probe": f"match = [{json.dumps(f'^{re.escape(device.name)}$')}]",
        "peak": "\n".join(_peaks(device, base.dtype, ask)),
    }
    tables |= {name: f"{tables[name]}\n{lines}" if name in tables else lines for name, lines in fitted.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join(f"[{name}]\n{lines}" if name else lines for name, lines in tables.items())
    replace_text(path, f"{text}\n")
    return load_hardware(path)


def _device(device_id: str | None, specs: Mapping[str, HardwareSpec]) -> Device:
    asked = (device_id or "").partition(":")[0]
    families = [family for family in FAMILIES if family != SERVER and asked in ("", family)]
    probes = [backends.backend(family).probe(PROBE_TIMEOUT_S) for family in families]
    devices = [device for probe in probes for device in probe.devices]
    for device in devices:
        if device.id == device_id or (device_id is None and not _described(device, specs)):
            return device
    if not devices:
        here = "; ".join(each.reason for each in probes) or f"no family {asked}"
    else:
        here = f"here: {'; '.join(f'{device.id} {device.name}{_described(device, specs)}' for device in devices)}"
    advice = "" if device_id else "; --device ID writes a further file"
    raise ConfigError(f"no device {device_id or 'without a hardware file'}; {here}{advice}")


def _described(device: Device, specs: Mapping[str, HardwareSpec]) -> str:
    """The hardware files of the device in words; empty where it has none."""
    names = [spec.name for spec in specs.values() if spec.family == device.family and spec.matches(device.name)]
    return f" (hardware file {listed(names)})" if names else ""


def _peaks(device: Device, dtype: str, ask: Ask) -> Iterator[str]:
    """The lines of [peak], by the driver and by the answers. Raises ConfigError for an answer that is no figure."""
    driver = getattr(backends.backend(device.family), "memory_bandwidth_bytes_per_s", None)
    bandwidth = None if driver is None else driver(device)
    asked = {
        f"flops_per_s.{dtype}": (f"dense {dtype} compute of {device.name}", FLOP_UNITS),
        "memory_bandwidth_bytes_per_s": ("memory bandwidth", BANDWIDTH_UNITS),
        "interconnect_bandwidth_bytes_per_s": ("what it sends to others of a group, in one direction", BANDWIDTH_UNITS),
    }
    if bandwidth:
        del asked["memory_bandwidth_bytes_per_s"]
    answers = {
        key: _figure(ask(f"{what} ({listed(units)}; empty: unknown): "), units) for key, (what, units) in asked.items()
    }
    if any(answers.values()):
        yield f"source = {json.dumps(ask('the document that states it, with its address: ') or BY_HAND)}"
    yield from (f"{key} = {{ {figure} }}" for key, figure in answers.items() if figure)
    by_driver = (("memory_bandwidth_bytes_per_s", bandwidth, "B/s"), ("memory_bytes", device.memory_bytes, "B"))
    for key, value, unit in by_driver:
        if value:
            yield f'{key} = {{ value = {value:.0f}, unit = "{unit}", source = "{BY_DRIVER}" }}'


def _figure(answer: str, units: Mapping[str, float]) -> str:
    """An answer such as "121 TFLOP/s" as entries of TOML; empty for an empty one."""
    value, _, unit = answer.strip().partition(" ")
    if value and (unit.strip() not in units or not re.fullmatch(r"\d+(\.\d+)?", value)):
        raise ConfigError(f"{answer!r}: want a number and one of {listed(units)}, such as '121 {list(units)[1]}'")
    return f'value = {value}, unit = "{unit.strip()}"' if value else ""


def fitted_entries(base: HardwareSpec, memory_bytes: float) -> dict[str, str]:
    """What a file that is like `base` has of its own for one device of this memory: lines by the name of their table,
    or "" for what stands above all tables. Raises ConfigError where none of the models fits."""
    memory = Memory(value=memory_bytes, unit="B", source=BY_DRIVER)
    spec = replace(base, peak=Peak(memory_bytes=memory), tensor_parallel=1, devices_per_chip=1, max_batch_sizes={})
    largest = {model: batch for model in base.models if (batch := _largest_batch(spec, model))}
    if not largest:
        raise ConfigError(f"none of {listed(base.models)} fits in {memory_bytes / 1e9:.1f} GB")
    limits = {model: batch for model, batch in largest.items() if batch < max(base.batch_sizes)}
    models = [f"default = {json.dumps([*largest])}"] if len(largest) < len(base.models) else []
    if limits != base.max_batch_sizes:
        models.append(f"max_batch_size = {_inline(limits) if limits else 'false'}")
    entries = {"models": "\n".join(models)} if models else {}
    serving = base.section(ServingSpec)
    caches = {plan.model: _largest_cache(plan) for plan in _plans("scheduling", spec)}
    if not all(caches.values()):
        return {"": "serving = false", **entries}
    if serving is not None and caches != serving.kv_capacity:
        entries["serving"] = f"kv_capacity_tokens = {_inline(caches)}"
    return entries


def _plans(suite: str, spec: HardwareSpec) -> list[Any]:
    return list(suites.suite(suite).plans(spec, Choice(profile="full")))


def _largest_batch(spec: HardwareSpec, model: str) -> int:
    """The largest batch size of the model's campaigns that fit with all of their buckets; 0 for none. A search at that
    batch size takes less: one set of weights, and half of the cache."""
    memory = suites.suite("buckets").memory
    plans = [plan for plan in _plans("buckets", spec) if plan.model == model and not plan.is_search]
    fits = {plan.batch_size: fit(memory, plan) for plan in plans}
    return max((batch for batch, fitting in fits.items() if fitting and not fitting.skipped), default=0)


def _largest_cache(plan: ServingPlan) -> int:
    """The tokens of the largest KV cache that fits beside a model's weights and temporaries; 0 for none."""
    room = memory_room(plan)
    assert room is not None  # of a spec with its memory

    def fits(num_steps: int) -> bool:
        serving = replace(plan.serving, kv_capacity=num_steps * CACHE_STEP_TOKENS)
        return campaign_need(replace(plan, serving=serving)).total_bytes <= room.usable_bytes

    most = int(room.usable_bytes / plan.shape.kv_bytes_per_token(1) / CACHE_STEP_TOKENS)
    return CACHE_STEP_TOKENS * bisect_right(range(1, most + 1), False, key=lambda number: not fits(number))


def _inline(numbers: Mapping[str, int]) -> str:
    return f"{{ {', '.join(f'{json.dumps(name)} = {number}' for name, number in numbers.items())} }}"

"""Reads every config.json of a folder, and prints which are read, as what, and which are refused, by which name.

    python benchmarks/real_configs.py [FOLDER]

Without a folder those that NVIDIA's aiconfigurator-core 0.12 has (`make preflight` installs it): 89 files of 2024 to
2026. The table stands in docs/scheduling.md, and a test holds it against this program.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from pytest_npubench.engines.config_keys import language_model
from pytest_npubench.engines.hf_config import read_shape
from pytest_npubench.errors import ConfigError

HEAD = """\
| model_type | files | weights, 1e9 | cache a token, kB | states a request, MB |
|---|---|---|---|---|"""


def shipped_configs() -> Path:
    """The folder of aiconfigurator-core. Raises FileNotFoundError where it is not installed."""
    spec = find_spec("aiconfigurator_core")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("aiconfigurator-core is not installed; want it, or a folder")
    return Path(spec.origin).parent / "model_configs"


def table(folder: Path) -> str:
    """Of the files that are named ...config.json, by the model type of what writes the text."""
    families = defaultdict(list)
    for path in sorted(folder.rglob("*config.json")):
        if not path.name.endswith("hf_quant_config.json"):
            config, _ = language_model(json.loads(path.read_text(encoding="utf-8")))
            families[str(config.get("model_type")).removesuffix("_text")].append(path)
    return "\n".join([HEAD, *(row for name, paths in sorted(families.items()) for row in _rows(name, paths))])


def _rows(name: str, paths: list[Path]) -> Iterator[str]:
    shapes, reasons = [], []
    for path in paths:
        try:
            shapes.append(read_shape(path))
        except ConfigError as error:
            reasons.append(str(error).partition(" has ")[2].removesuffix(NOT_MODELLED).partition(";")[0])
    if shapes:
        weights = _range([round(shape.num_parameters / 1e9, 1) for shape in shapes])
        cache = _range([round(shape.kv_bytes_per_token(2) / 1e3, 1) for shape in shapes])
        states = _range([round(shape.state_bytes(2) / 1e6, 1) for shape in shapes])
        yield f"| `{name}` | {len(shapes)} | {weights} | {cache} | {states} |"
    for reason in sorted(set(reasons)):
        yield f"| `{name}` | {reasons.count(reason)} refused: {reason} ||||"


NOT_MODELLED = ", which is not modelled"


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    if not high:
        return ""
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


if __name__ == "__main__":
    print(table(Path(sys.argv[1]) if len(sys.argv) > 1 else shipped_configs()))

"""How jobs of Qualcomm AI Hub are run: units, target runtime, pinned tools, and how long anything is waited for."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.compilers.hub.profile import UNITS

TARGET_RUNTIMES = ("qnn_dlc", "onnx", "tflite", "qnn_context_binary", "precompiled_qnn_onnx")
NPU_ONLY = ("qnn_context_binary", "precompiled_qnn_onnx")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How jobs are run. `units` are profiled one by one; `qairt` is the version that jobs are pinned to, None: not.

    timeout_s counts from a job's submission and holds its time in the queue. Raises ConfigError naming what is wrong.
    """

    units: tuple[str, ...] = UNITS
    target_runtime: str = "qnn_dlc"
    qairt: str | None = None
    qairt_full: str | None = None
    num_iterations: int = 100
    poll_s: float = 10.0
    timeout_s: float = 2 * 3600.0
    rate_limit_s: float = 1800.0

    def __post_init__(self) -> None:
        if self.target_runtime not in TARGET_RUNTIMES:
            raise ConfigError(f"target runtime {self.target_runtime!r}; want one of {', '.join(TARGET_RUNTIMES)}")
        if unknown := [unit for unit in self.units if unit not in UNITS]:
            raise ConfigError(f"compute unit {unknown[0]!r}; want one of {', '.join(UNITS)}")
        if self.target_runtime in NPU_ONLY and self.units != ("npu",):
            raise ConfigError(f"{self.target_runtime} runs on the npu alone; asked for {', '.join(self.units)}")

    @property
    def compile_options(self) -> str:
        return self._joined(f"--target_runtime {self.target_runtime}")

    def profile_options(self, unit: str) -> str:
        return self._joined(f"--compute_unit {unit} --max_profiler_iterations {self.num_iterations}")

    def _joined(self, text: str) -> str:
        return f"{text} --qairt_version {self.qairt}" if self.qairt else text

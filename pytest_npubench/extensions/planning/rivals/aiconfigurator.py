"""NVIDIA's measured operators as a rival: aiconfigurator adds up what vLLM's took on such a device; nothing runs here.

    TTFT_b   its prefill of one prompt of b tokens (of the whole batch where prefill is shared)
    TBT_b    its decode step of the batch, each row at b tokens
    E2E      arXiv 2606.18042, Eq. 6 to 9; no moves

https://github.com/ai-dynamo/aiconfigurator (Apache-2.0), whose package aiconfigurator-core the user installs: GEMM,
attention and communication as measured on each system, interpolated over shapes, without what the host adds.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pytest_npubench.core.measurement import CostRecord
from pytest_npubench.errors import MeasurementError
from pytest_npubench.predictors.lens import FittedLens, LensPredictor
from pytest_npubench.predictors.profile import BucketProfile, BucketTiming
from pytest_npubench.predictors.protocol import Predictor, ProfileSamples
from pytest_npubench.predictors.two_point import count_cost

DTYPE = "bf16"
ENGINE = "vllm"
MS_A_SECOND = 1e3
INSTALL = "pip install 'pytest-npubench[aiconfigurator]'"


class Aiconfigurator(Predictor):
    name = "aiconfigurator"
    about = "vLLM's operators as NVIDIA measured them on such a device (aiconfigurator), added up by LENS's equations"
    basis = "from NVIDIA's measurements, nothing of this device"

    def fit(self, samples: ProfileSamples) -> FittedLens:
        """Raises MeasurementError with the reason where NVIDIA measured no such model, device or group."""
        if samples.run is None:
            raise MeasurementError(f"unavailable: {samples.why_no_run}")
        if samples.run.dtype != DTYPE:
            raise MeasurementError(f"unavailable: it is asked for {DTYPE} alone, and this is {samples.run.dtype}")
        prompts = samples.batch_size if samples.prefill_shared else 1
        try:
            model = _model(json.dumps(samples.run.config), samples.run.system, samples.run.num_devices)
            times_ms = {
                bucket: (
                    model.predict_prefill_latency(prompts, bucket),
                    model.predict_decode_latency(samples.batch_size, bucket - 1),
                )
                for bucket in samples.buckets
            }
        except ImportError as error:
            raise MeasurementError(f"unavailable: {error}; {INSTALL}") from error
        except Exception as error:  # its errors have no common class: no such system, group, shape, file
            said = next(iter(str(error).partition(" at /")[0].splitlines()), "") or type(error).__name__
            raise MeasurementError(f"unavailable: aiconfigurator has none of {samples.run.system}: {said}") from error
        buckets = {
            bucket: BucketTiming(ttft_s=ttft_ms / MS_A_SECOND, tbt_s=tbt_ms / MS_A_SECOND)
            for bucket, (ttft_ms, tbt_ms) in times_ms.items()
        }
        profile = BucketProfile(buckets=buckets, batch_size=samples.batch_size, prefill_shared=samples.prefill_shared)
        return FittedLens(lens=LensPredictor(profile, keys=samples.keys), finished=samples.finished)

    def cost(self, samples: ProfileSamples) -> CostRecord:
        """Nothing is compiled or measured."""
        return count_cost((), {}, sessions=1)


@lru_cache(maxsize=4)
def _model(config: str, system: str, num_devices: int) -> Any:
    """aiconfigurator's model of a config.json on so many devices, by the newest measurements that it calls current.
    Raises what it raises."""
    from aiconfigurator_core.sdk.engine import EngineHandle

    with TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(config, encoding="utf-8")
        return EngineHandle.compile(folder, system, ENGINE, tp_size=num_devices)


PREDICTOR = Aiconfigurator()

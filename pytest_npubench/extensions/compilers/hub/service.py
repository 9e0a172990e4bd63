"""Qualcomm AI Hub through its own client: devices, uploads, jobs. Raises only our errors (client_errors.py).

The client is told to print nothing and never to wait: whoever asks decides how often, and can be killed at any time.
Ids are plain text, so that they outlive the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pytest_npubench.errors import DeviceUnavailableError, MeasurementError
from pytest_npubench.extensions.compilers.hub.client_errors import CONFIGURE, in_words

MAX_SUMMARIES = 500  # how far back a job is looked for by its name
PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class HubDevice:
    """A device as the service lists it. `chipset` and `hexagon` come from its attributes; None where it names none."""

    name: str
    os: str
    attributes: tuple[str, ...]

    def attribute(self, kind: str) -> str | None:
        """Returns what follows the colon of the first attribute "kind:rest"."""
        return next((text.partition(":")[2] for text in self.attributes if text.startswith(f"{kind}:")), None)

    @property
    def title(self) -> str:
        """What hardware files are matched with: the product and its chipset."""
        return ", ".join(part for part in (self.name, self.attribute("chipset")) if part)

    @property
    def profiles(self) -> bool:
        """Whether jobs run on this very device: proxies compile only, and a family is any of several devices."""
        return not self.name.endswith(("(Proxy)", "(Family)")) and "framework:qnn" in self.attributes


class AiHubService:
    """One user's access. Raises DeviceUnavailableError where the client is not installed or not configured."""

    def __init__(self, client: Any = None) -> None:
        self._hub = _import_client()
        try:
            self._client = client or self._hub.Client()
            config = self._client.config
        except Exception as error:  # noqa: BLE001 - whatever the client says of its own configuration, it is not usable
            raise DeviceUnavailableError(_not_configured(error)) from None
        config.verbose = False
        self._token = str(config.api_token)
        self.host = urlsplit(config.api_url).hostname or config.api_url
        self.version = str(self._hub.__version__)
        self._jobs: dict[str, Any] = {}  # asking a known job for its state is one request, an unknown one two

    @property
    def stand_in(self) -> bool:
        """Whether this is not Qualcomm's own service, so that its figures are nobody's measurements."""
        return not f".{self.host}".endswith(".qualcomm.com")

    def devices(self) -> tuple[HubDevice, ...]:
        """All devices of the service, also those that only compile."""
        with self._asking("the list of devices"):
            listed = self._client.get_devices()
        return tuple(HubDevice(name=item.name, os=item.os, attributes=tuple(item.attributes)) for item in listed)

    def qairt(self) -> tuple[str, str] | None:
        """Returns the service's default QAIRT as (what options call it, full version); None where it names none."""
        with self._asking("the list of frameworks"):
            frameworks = self._client.get_frameworks()
        chosen = [item for item in frameworks if item.name.upper() in ("QAIRT", "QNN") and "default" in item.api_tags]
        return (chosen[0].api_version, chosen[0].full_version) if chosen else None

    def upload(self, path: Path, name: str) -> str:
        """Upload a graph, an .onnx file or a folder of .onnx and .data; returns the model's id."""
        with self._asking(f"uploading {name}"):
            return str(self._client.upload_model(str(path), name=name).model_id)

    def submit_compile(self, model_id: str, device: HubDevice, *, name: str, options: str) -> str:
        """Submit a compile job; returns its id."""
        with self._asking(f"compile job {name}"):
            model = self._client.get_model(model_id)
            job = self._client.submit_compile_job(
                model, device=self._device(device), name=name, options=options, retry=False
            )
        return self._remembered(job)

    def submit_profile(self, compile_job_id: str, device: HubDevice, *, name: str, options: str) -> str:
        """Submit a profile job for what a successful compile job made; returns its id."""
        with self._asking(f"profile job {name}"):
            model = self._job(compile_job_id).get_target_model()
            if model is None:
                raise MeasurementError(f"compile job {compile_job_id} left no model to profile")
            job = self._client.submit_inference_job(
                model, device=self._device(device), name=name, options=options, profile=True, retry=False
            )
        return self._remembered(job)

    def find_job(self, name: str, kind: str) -> str | None:
        """Returns the id of the latest "compile" or "profile" job of that name; None where the last MAX_SUMMARIES hold
        none."""
        types = self._hub.JobType
        wanted = types.COMPILE if kind == "compile" else types.INFERENCE
        with self._asking("the list of jobs"):
            for offset in range(0, MAX_SUMMARIES, PAGE):
                summaries = self._client.get_job_summaries(offset=offset, limit=PAGE, type=wanted)
                for summary in summaries:
                    if summary.name == name:
                        return str(summary.job_id)
                if not summaries:
                    break
        return None

    def state(self, job_id: str) -> tuple[str, str]:
        """Returns the job's state, SUCCESS and FAILED being final, and what the service says of it."""
        with self._asking(f"the state of job {job_id}"):
            status = self._job(job_id).get_status()
        return str(status.code), str(status.message or "")

    def report(self, job_id: str) -> Mapping[str, Any]:
        """What a successful profile job measured: execution_summary, execution_detail, tool_versions by name.

        Raises MeasurementError where the service has no profile of it.
        """
        with self._asking(f"the result of job {job_id}"):
            profile = self._job(job_id).download_profile()
            rest = import_module("qai_hub.public_rest_api")
            versions = rest.get_job_results(self._client.config, job_id).inference_job_result.detail.tool_versions
        if not profile:
            raise MeasurementError(f"job {job_id}: the service has no profile of it")
        return {**profile, "tool_versions": {item.name: item.version for item in versions}}

    def _remembered(self, job: Any) -> str:
        self._jobs[str(job.job_id)] = job
        return str(job.job_id)

    def _job(self, job_id: str) -> Any:
        if job_id not in self._jobs:
            self._jobs[job_id] = self._client.get_job(job_id)
        return self._jobs[job_id]

    def _device(self, device: HubDevice) -> Any:
        return self._hub.Device(device.name, device.os)

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        with in_words(self._token, what):
            yield


def _import_client() -> Any:
    try:
        return import_module("qai_hub")
    except ImportError as error:
        raise DeviceUnavailableError(
            f"qai-hub cannot be imported ({error}): pip install pytest-npubench[qaihub]"
        ) from None


def _not_configured(error: Exception) -> str:
    """Never the client's own text as a whole: a broken file may be quoted in it."""
    return f"no Qualcomm AI Hub token that can be read: {type(error).__name__} (run: {CONFIGURE})"

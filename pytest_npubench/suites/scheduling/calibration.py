"""What a device can do: it turns a utilisation into a rate, and the paper's rule into SLOs.

Measured before the rounds of a first session, and frozen by its acceptance (held_to.py says why).

rate       = utilisation x the rate at which chunked prefill serves requests that are all there at once
TBT limit  = 5 x one decode step of 32 requests at the workload's mean context     (Layered Prefill, section 5.1)
TTFT limit = 15 x the seconds between requests at that full rate: the paper's 10 s are 15 of the 0.67 s that chunked
             prefill leaves between requests where its attainment ends, 1.5 requests a second (Table 5, Fig. 3)
"""

from __future__ import annotations

from pytest_npubench.campaign.served_block import Calibration
from pytest_npubench.core.hardware import SloSpec
from pytest_npubench.serving.metrics import Slo
from pytest_npubench.suites.scheduling.spec import LoadSpec

TBT_STEPS = 5.0
TBT_BATCH_SIZE = 32
TTFT_REQUESTS = 15.0


def is_stated(load: LoadSpec, published: SloSpec | None) -> bool:
    """Whether the hardware file states the rate and the limits, so that nothing is left to be measured."""
    return load.rate_per_s is not None and published is not None


def rate_per_s(load: LoadSpec, calibration: Calibration | None) -> float:
    """Returns the rate at which a load's requests arrive; a calibration is wanted for a utilisation."""
    if load.rate_per_s is not None:
        return load.rate_per_s
    assert load.utilisation is not None
    assert calibration is not None
    return load.utilisation * calibration.full_rate_per_s


def fewest_requests(utilisation: float, target: float) -> int:
    """Returns how many requests a block needs before less than `target` of them can attain the rule's TTFT limit:
    request i of a full queue has its first token i - (i - 1) / utilisation services after it arrived. 29 at 2.24 times
    the full rate for 0.9: the first 26 attain. `utilisation` above 1."""
    num_attained = int((TTFT_REQUESTS - 1 / utilisation) / (1 - 1 / utilisation))
    return int(num_attained / target) + 1


def limits(published: SloSpec | None, calibration: Calibration | None) -> Slo:
    """Returns the hardware file's where it has any for this model and workload, else those of the rule."""
    if published is not None:
        return Slo(ttft_s=published.ttft_s, tbt_s=published.tbt_s)
    assert calibration is not None
    return Slo(ttft_s=TTFT_REQUESTS / calibration.full_rate_per_s, tbt_s=TBT_STEPS * calibration.decode_step_s)

"""MaxText's MaxEngine, and other engines of JetStream's interface, as an engine of the bucket suite.

    interface     what is used of MaxText and JetStream, and where that was read
    lengths       the lengths that a configuration declares
    opening       a MaxEngine from a configuration
    engine        engines.protocol.Engine on it

It ran on MaxText 0.2.5 on a CPU and on a stand-in, on no TPU: docs/adapters.md.
"""

from __future__ import annotations

from importlib.util import find_spec

from pytest_npubench.core.entry_points import installed_version
from pytest_npubench.engines.descriptor import EngineDescriptor

PACKAGES = ("maxtext", "MaxText")
"""As it is called since MaxText became a package, and before."""
MISSING = (
    "MaxText is not installed; want `pip install 'maxtext[tpu]'`, or the extra of another device, in Python 3.12 "
    "(docs/adapters.md)"
)


class MaxText(EngineDescriptor):
    """It runs on the family's own runtime of jax."""

    name = "maxtext"
    title = "MaxText"
    about = "MaxText's MaxEngine with random weights"
    families = ("tpu", "cuda", "cpu")
    parts = {"buckets": "pytest_npubench.extensions.adapters.maxtext.bucket_service:MaxTextBuckets"}  # noqa: RUF012 - of the class

    def why_not_here(self, family: str) -> str:
        return "" if any(map(find_spec, PACKAGES)) else MISSING

    def software(self) -> str:
        return f"maxtext {installed_version('maxtext') or ''}".rstrip()  # a checkout that is not installed has none


ENGINE = MaxText()

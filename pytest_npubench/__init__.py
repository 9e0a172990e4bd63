"""pytest-npubench: LLM-accelerator microbenchmarks as pytest cases with honest verdicts.

This module is imported by every pytest run that has the plugin installed, so it imports nothing.
"""

__version__ = "0.1.0"

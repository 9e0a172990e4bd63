"""Tests of the vLLM engine. Those that need vLLM skip without it; the others run everywhere."""

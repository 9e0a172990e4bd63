"""Prefill scheduling policies on one engine (Layered Prefill)."""

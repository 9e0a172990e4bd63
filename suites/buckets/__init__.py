"""Latency by bucket, and how well it is predicted from a few points (LENS)."""

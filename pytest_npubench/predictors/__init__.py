"""Latency predictors: from a few measured points to the latency of any request."""

"""Campaigns of the scheduling suite: blocks of requests served under policies, in turn, on one engine."""

"""Serving: requests arrive, a scheduler plans iterations, an executor runs them, and metrics are read off the times.

Time points of a request, all on one clock, in order:
    arrival_s      when the load says it comes, whether or not anything was ready for it
    dispatched_s   when the loop took notice; dispatch lag = dispatched - arrival
    scheduled_s    the start of the first iteration that runs some of its prompt
    token_times_s  the end of each iteration that gave it a token
Every metric is arithmetic on them (serving/metrics).
"""

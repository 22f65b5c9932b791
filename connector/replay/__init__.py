"""Replay: vLLM's real Scheduler, KV-cache manager and connectors without a model, in virtual time.

Engine ring, and its outermost room: nothing of the connector imports it. `app/cli.py` does, when somebody asks.
"""

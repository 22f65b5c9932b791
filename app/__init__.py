"""The app: routes under /restore in vLLM's API server, or alone over a recorded log. Never imports vLLM's engine."""

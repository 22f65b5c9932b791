"""`vllm-restore bench`: the same conversations over HTTP under one policy after another, and what each gave."""

"""The re-store KV connector for vLLM, its policy, its events and its log.

The pure ring (`events`, `policy`, `owners`) needs only the standard library; the log ring (`tables`, `log`, `recorder`)
adds SQLAlchemy; the engine ring (`kv_connector`, `scheduler`, `worker`, `plugin`) adds vLLM and is loaded by vLLM
alone.
"""

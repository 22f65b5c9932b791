"""Any other model in the embedded one's place, and the end of a server: nothing lost, nothing left."""

from pathlib import Path

import pytest

from tests.engine.server import Server
from tests.engine.tiny import make_tiny_model

pytestmark = pytest.mark.engine


def test_a_local_folder_is_served_and_its_log_is_whole_after_sigterm(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "tiny")
    flags = ("--load-format", "dummy", "--dtype", "float32", "--max-model-len", "512", "--enforce-eager")
    sizes = (
        *("--kv-cache-memory-bytes", "4000000"),
        *("--kv-transfer-config.kv_connector_extra_config.cpu_bytes_to_use", "4000000"),
    )
    server = Server(tmp_path, str(model), *flags, *sizes, "--served-model-name", "tiny")
    try:
        assert [known.id for known in server.client().models.list().data] == ["tiny"]
        # 300 tokens are two full blocks of 128, vLLM's own size on the CPU.
        usage = server.client().completions.create(model="tiny", prompt=list(range(300)), max_tokens=2).usage
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens) == (300, 2)
        assert server.stop() == 0, server.tail()
        server.await_no_survivor()
    finally:
        server.kill()
    assert [row["num_tokens"] for row in server.rows("SELECT num_tokens FROM lookup")] == [300]
    assert [row["num_output_tokens"] for row in server.rows("SELECT num_output_tokens FROM request_finished")] == [2]
    assert [row["n"] for row in server.rows("SELECT sum(num_blocks) AS n FROM blocks_stored")] == [2]
    assert [row for row in server.rows("SELECT * FROM engines") if row["stopped_wall_ns"] is None] == []

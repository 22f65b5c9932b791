"""The `openai` client against the real server: vLLM's own routes are as they always are."""

import openai
import pytest

from tests.engine.server import BLOCK, MODEL, Server

pytestmark = pytest.mark.engine

CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]


def test_the_model_is_listed(live_server: Server) -> None:
    models = live_server.client().models.list().data
    assert [model.id for model in models] == [MODEL]


def test_a_chat_is_answered_with_sense(live_server: Server) -> None:
    answer = live_server.client().chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, max_tokens=40)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"


def test_a_chat_streams_the_same_answer_in_pieces(live_server: Server) -> None:
    client = live_server.client()
    whole = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, max_tokens=40)
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=CAPITAL,
            temperature=0,
            max_tokens=40,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert len(pieces) > 3
    assert "".join(pieces) == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_usage_tells_how_many_tokens_came_from_cache(live_server: Server) -> None:
    client = live_server.client()
    # A prompt of 100 tokens that no other test asks: three full blocks and four tokens.
    prompt = list(range(1000, 1100))
    cached: list[int | None] = []
    for _ in range(2):
        usage = client.completions.create(model=MODEL, prompt=prompt, max_tokens=1, temperature=0).usage
        assert usage is not None
        assert usage.prompt_tokens == 100
        assert usage.prompt_tokens_details is not None
        cached.append(usage.prompt_tokens_details.cached_tokens)
    assert cached == [0, 3 * BLOCK]


def test_an_unknown_model_is_not_found(live_server: Server) -> None:
    with pytest.raises(openai.NotFoundError, match="no-such-model"):
        live_server.client().chat.completions.create(model="no-such-model", messages=CAPITAL)


def test_a_prompt_that_is_too_long_is_refused_and_the_server_goes_on(live_server: Server) -> None:
    client = live_server.client()
    with pytest.raises(openai.BadRequestError, match="1024"):
        client.completions.create(model=MODEL, prompt=[5] * 2000, max_tokens=1)
    assert live_server.api("GET", "/health").status_code == 200


def test_vllms_own_metrics_are_there(live_server: Server) -> None:
    assert "vllm:num_requests_running" in live_server.api("GET", "/metrics").text

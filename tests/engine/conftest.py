"""The tiny model, what it answers without a connector, and servers of it: each is made when a test asks first."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.engine import gate, load, tiny
from tests.engine.references import tiny_answers_of
from tests.engine.server import Server
from tests.engine.talks import Talks, make_talks


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's folder."""
    return tiny.make_weighted_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def talks(live_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Talks:
    """Conversations with the embedded model, and what it answers to them without our scheduler half."""
    return make_talks(live_server, tmp_path_factory.mktemp("talks"))


@pytest.fixture(scope="session")
def load_prompts() -> list[list[int]]:
    return load.make_prompts()


def expected_of(model: Path, prompts: list[list[int]], folder: Path, ranks: int) -> list[list[int]]:
    """Answers without a connector, after a look that a block with other content would have changed them."""
    other = [prompts[0][0] + 1, *prompts[0][1:]]
    *expected, changed = tiny_answers_of(model, [*prompts, other], load.MAX_TOKENS, folder, ranks)
    assert changed[:20] != expected[0][:20]
    return expected


@pytest.fixture(scope="session")
def one_rank_at_work(
    tiny_model: Path, load_prompts: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[list[list[int]]]]:
    """What one rank without a connector will have answered to the load's prompts, then to the leavers'.

    It answers while `tiny_server` starts.
    """
    kept, long = load.make_leaver_prompts()
    prompts, folder = [*load_prompts, *kept, *long], tmp_path_factory.mktemp("expected")
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(expected_of, tiny_model, prompts, folder, 1)


@pytest.fixture(scope="session")
def one_rank_answers(one_rank_at_work: Future[list[list[int]]]) -> list[list[int]]:
    return one_rank_at_work.result()


@pytest.fixture(scope="session")
def expected(one_rank_answers: list[list[int]]) -> list[list[int]]:
    """The longest answers to the load's prompts."""
    return one_rank_answers[: load.CLIENTS]


@pytest.fixture(scope="session")
def expected_by_leavers(one_rank_answers: list[list[int]]) -> list[list[int]]:
    """The longest answers to the leavers' prompts, those that are kept first."""
    return one_rank_answers[load.CLIENTS :]


@pytest.fixture(scope="session")
def tiny_server(
    tiny_model: Path, one_rank_at_work: Future[list[list[int]]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The tiny model on one rank, with tiers that the load overflows. Its end is a check, too."""
    yield from serve(tiny_model, tmp_path_factory.mktemp("tiny"), 1)


def serve(model: Path, folder: Path, ranks: int) -> Iterator[Server]:
    """A server for a fixture, with a gate before the copies of each rank; nothing of it may be wrong at the end."""
    flags = tiny.flags(model, gpu_blocks=load.GPU_BLOCKS, cpu_blocks=load.CPU_BLOCKS, ranks=ranks)
    environment = gate.environment(folder) | tiny.environment(ranks)
    server = Server(folder, *flags, *gate.FLAGS, environment=environment)
    try:
        yield server
        assert server.process.poll() is None, server.tail()
        assert server.rows("SELECT * FROM fault") == []
        assert server.rows("SELECT * FROM events_dropped") == []
        assert server.stop() == 0, server.tail()
        server.await_no_survivor()
    finally:
        server.kill()

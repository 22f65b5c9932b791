"""vLLM's open proposals as a replay plays them: each where it keeps what stock loses, worked out by hand.

As in `test_engine`, a request of 33 tokens is two full blocks and the token that is always computed.
"""

from pathlib import Path

import pytest

from connector.replay.engine import ReplayEngine
from connector.replay.outcome import Outcome
from connector.replay.policies import POLICIES
from connector.replay.trace import Row, Trace, TraceTraffic
from connector.replay.workload_file import EngineSpec


def run(rows: list[Row], policy: str, gpu_blocks: int, cpu_blocks: int) -> Outcome:
    traffic = TraceTraffic(Trace(Path("trace"), tuple(rows), 16), 16)
    engine = ReplayEngine(
        EngineSpec(), POLICIES[policy], gpu_blocks=gpu_blocks, cpu_blocks=cpu_blocks, longest=traffic.longest
    )
    return engine.run(traffic)


@pytest.mark.parametrize(("policy", "cpu_hit_tokens"), [("stock", 0), ("refresh", 16), ("pin", 16)])
def test_a_head_that_is_passed_again_stays(policy: str, cpu_hit_tokens: int) -> None:
    # The tier holds 4 blocks. The first three requests find block 1 on the GPU and store 1 2, then 4, then 6. The
    # fourth takes the whole GPU and stores 8 9, in the place of the two that were used least recently: 1 2, or 2 4
    # where passing block 1 by counted as a use, or owning it for a while did. The fifth asks for block 1.
    ids = [(1, 2, 3), (1, 4, 5), (1, 6, 7), (8, 9, 10), (1, 11, 12)]
    outcome = run([Row(n, 10.0 * n, 33, 1, each) for n, each in enumerate(ids)], policy, 4, 5)
    assert outcome.all.gpu_hit == 2 * 16
    assert outcome.all.cpu_hit == cpu_hit_tokens


@pytest.mark.parametrize(("policy", "cpu_hit_tokens"), [("stock", 0), ("refresh", 0), ("pin", 32)])
def test_what_a_running_request_owns_stays_with_pin(policy: str, cpu_hit_tokens: int) -> None:
    # One request runs for 60 steps, 1.2 s, and stores 5 blocks. Meanwhile nine others store 2 each, into a tier of 18:
    # the oldest 5 go, and with them blocks 1 and 2. After it has ended, six others take the whole GPU and 12 places of
    # the tier, of which the 13 oldest are not the long one's. Then somebody asks for its prompt again.
    long = Row(0, 0.0, 33, 60, (1, 2, 3))
    meanwhile = [Row(1 + n, 0.1 * (1 + n), 33, 1, (100 + 3 * n, 101 + 3 * n, 102 + 3 * n)) for n in range(9)]
    after = [Row(20 + n, 10.0 + n, 33, 1, (200 + 3 * n, 201 + 3 * n, 202 + 3 * n)) for n in range(6)]
    again = Row(30, 30.0, 33, 1, (1, 2, 50))
    outcome = run([long, *meanwhile, *after, again], policy, 10, 19)
    assert outcome.all.gpu_hit == 0
    assert outcome.all.cpu_hit == cpu_hit_tokens

"""What must hold of `adaptive`'s tree after every step: it counts what the pool holds, no chain has a hole, nothing
that lies in the pool is nobody's.

Test support.
"""

from typing import Any

from harness import Engine

from connector.chains import Chain
from connector.retention import LIVE, Retention
from connector.views import View


def check_keeper(engine: Engine) -> None:
    keeper = engine.manager._restorer.keeper
    assert engine.manager._tier.keeper is keeper
    if keeper is None:
        return
    check_tree(keeper.retention)
    unfinished = {r for r, request in engine.scheduler.requests.items() if not request.is_finished()}
    assert set(keeper._paths) <= unfinished, "a request that is over still has a path"
    waits = {r for r, path in keeper._paths.items() if path.is_waiting}
    assert waits.isdisjoint(request.request_id for request in engine.scheduler.running), "it runs and waits"
    pool = engine.manager.cpu_block_pool
    # What left since the last hook is told with the next one.
    pending = {key for _, key in engine.manager._tier._observer._evicted}
    counted: set[Any] = set()
    for chain in keeper.retention.tree:
        counted.update(chain.keys[: chain.counts[LIVE]])
    missing = {
        key
        for key in counted - engine.manager._tier.keys_in_flight.keys() - pending
        if pool.cached_block_hash_to_block.get_one_block(key) is None
    }
    assert not missing, f"the tree counts {len(missing)} blocks that the tier has not"
    known = {*keeper._strays, *keeper._pinned_strays, *keeper._promised}
    for block in pool.blocks:
        if block.block_hash is not None and block.block_hash not in counted | set(keeper._hangs_on):
            assert block.block_id in known, f"block {block.block_id} of the tier is nobody's"
    for key, on in keeper._hangs_on.items():
        assert key in keeper._hung[on]
        assert on in counted, "a block goes with one that is not counted"


def check_tree(retention: Retention) -> None:
    """Counts, kids and owners add up, and no chain has a hole before it."""
    views = {view.index: view for view in retention._views}
    used = dict.fromkeys(views, 0)
    num_blocks = num_chains = 0
    for chain in retention.tree:
        assert chain.keys
        num_chains += 1
        num_blocks += len(chain.keys)
        assert all(retention.tree.find(key) is chain for key in chain.keys)
        parent = chain.parent
        assert parent is not None
        assert chain.start == parent.start + len(parent.keys)
        owners = len(chain.paths) + sum(kid.num_owners for kid in chain.children.values())
        assert chain.num_owners == owners
        waiting = sum(path.is_waiting for path in chain.paths) + sum(kid.num_waiting for kid in chain.children.values())
        assert chain.num_waiting == waiting
        for v, view in views.items():
            used[v] += chain.counts[v]
            assert not view.is_candidate(chain) or _can_be_found(view, chain), f"nobody finds {chain} in view {v}"
            assert 0 <= chain.counts[v] <= len(chain.keys)
            assert chain.num_kids[v] == sum(1 for kid in chain.children.values() if kid.counts[v])
            assert not chain.num_kids[v] or chain.counts[v] == len(chain.keys), "a hole"
    assert num_blocks == len(retention.tree)
    assert num_chains == retention.tree.num_chains
    for v, view in views.items():
        assert view.used == used[v]
        assert view.used <= view.capacity


def _can_be_found(view: View, chain: Chain) -> bool:
    """Whether the chain is set aside, or stands in the heap of its class as what it is now."""
    heap = view._heaps.get(view._classify(chain), [])
    return chain in view._parked or any(e[3] is chain and e[0] == view._order(chain) for e in heap)

"""Why each lookup ended where it did: every cause, worked out by hand.

Blocks hold 16 tokens. `prompt(s, n)` is n whole blocks and one token more, so that all n can be found; `prompt(s, n)`
and `prompt(s, m)` agree as far as the shorter goes.
"""

import pytest
from harness import BLOCK, full_attention, prompt, sliding_window
from vllm.sampling_params import SamplingParams

from connector.policy import Policy

OFF = Policy(enabled=False)
LOST = "SELECT cause, cause_detail, cut_index, lost_tokens / 16, behind_tokens / 16 FROM lookup WHERE request_id = "


@pytest.fixture
def told(make_engine):
    """(cause, detail, cut, blocks lost, blocks usable behind the cut) of the newest lookup of a request."""

    def ask(engine, request_id):
        engine.close()
        return engine.sql(f"{LOST}'{request_id}' ORDER BY seq DESC LIMIT 1")[0]

    return ask


def run(engine, request_id, tokens, **kwargs):
    """The request comes, is computed, ends, and its blocks lie in the CPU tier alone."""
    engine.add(request_id, tokens, **kwargs)
    engine.steps(2)
    engine.finish(request_id)
    engine.settle()
    engine.forget_gpu_prefixes()


# --- found, and not asked ---------------------------------------------------------------------------------------------


def test_whole_prompt_found_has_no_cause(make_engine, told):
    engine = make_engine(cpu_blocks=33)
    run(engine, "a", prompt(0, 4))
    run(engine, "b", prompt(0, 4))
    assert told(engine, "b") == (None, None, None, 0, 0)


def test_request_that_does_not_ask_is_cache_skipped(make_engine, told):
    engine = make_engine(cpu_blocks=33)
    run(engine, "a", prompt(0, 4))
    params = SamplingParams(max_tokens=4, ignore_eos=True, skip_reading_prefix_cache=True)
    run(engine, "b", prompt(0, 4), sampling_params=params)
    assert told(engine, "b") == ("cache_skipped", None, None, 0, 0)


def test_new_prompt_that_does_not_ask_is_cache_skipped_too(make_engine, told):
    engine = make_engine(cpu_blocks=33)
    params = SamplingParams(max_tokens=4, ignore_eos=True, skip_reading_prefix_cache=True)
    run(engine, "a", prompt(0, 4), sampling_params=params)
    assert told(engine, "a") == ("cache_skipped", None, None, 0, 0)


@pytest.mark.parametrize("num_tokens", [1, BLOCK - 1])
def test_prompt_without_a_full_block_is_shorter_than_a_block(make_engine, told, num_tokens):
    engine = make_engine(cpu_blocks=33)
    run(engine, "a", prompt(0, 1)[:num_tokens])
    assert told(engine, "a") == ("shorter_than_a_block", None, None, 0, 0)


@pytest.mark.parametrize("num_blocks", [1, 4])
def test_last_block_that_the_prompt_just_fills_falls_to_the_last_token_rule(make_engine, told, num_blocks):
    """The last token is computed to have a next one, and with it its whole block, although the tier has that too."""
    engine = make_engine(cpu_blocks=33)
    run(engine, "a", prompt(0, num_blocks))
    run(engine, "b", prompt(0, num_blocks)[: num_blocks * BLOCK])
    assert told(engine, "b") == ("last_token_rule", None, None, 0, 0)


def test_full_last_block_that_nobody_computed_before_is_nothing_lost(make_engine, told):
    engine = make_engine(cpu_blocks=33)
    run(engine, "a", prompt(0, 3))
    run(engine, "b", prompt(0, 4)[: 4 * BLOCK])
    assert told(engine, "b") == (None, None, None, 0, 0)


# --- never seen -------------------------------------------------------------------------------------------------------


def test_first_prompt_ever_is_a_new_head(make_engine, told):
    engine = make_engine(cpu_blocks=33)
    run(engine, "a", prompt(0, 4))
    assert told(engine, "a") == ("never_seen", "new_head", 0, 0, 0)


def test_chat_that_goes_on_extends_its_chain(make_engine, told):
    engine = make_engine(cpu_blocks=33)
    run(engine, "a", prompt(0, 3))
    run(engine, "b", prompt(0, 5))
    assert told(engine, "b") == ("never_seen", "extends", 3, 0, 0)


def test_prompt_that_departs_names_who_went_the_other_way(make_engine, told):
    engine = make_engine(cpu_blocks=33)
    run(engine, "a", prompt(0, 4))
    run(engine, "b", prompt(0, 2)[: 2 * BLOCK] + prompt(7, 3))
    assert told(engine, "b") == ("never_seen", "departs", 2, 0, 0)
    assert engine.sql("SELECT sibling_hash, by_request_id FROM lookup WHERE request_id = 'b'") == [
        (bytes(engine.requests["a"].block_hashes[2]), "a")
    ]


def test_departure_in_a_model_with_a_window(make_engine, told):
    engine = make_engine(cpu_blocks=33, groups=[full_attention(), sliding_window(32)])
    run(engine, "a", prompt(0, 4))
    run(engine, "b", prompt(0, 4)[: 4 * BLOCK] + prompt(7, 3))
    run(engine, "c", prompt(0, 4)[: 4 * BLOCK] + prompt(9, 3))
    assert told(engine, "c") == ("never_seen", "departs", 4, 0, 0)


def test_prompt_whose_first_asker_never_got_to_it_was_never_computed(make_engine, told):
    engine = make_engine(cpu_blocks=33)
    engine.add("a", prompt(0, 4))
    engine.abort("a")
    run(engine, "b", prompt(0, 4))
    assert told(engine, "b") == ("never_seen", "never_computed", 0, 0, 0)


# --- never stored -----------------------------------------------------------------------------------------------------


def test_block_dropped_at_a_finish_for_want_of_room_was_never_stored(make_engine, told):
    """A tier of 4 with a copy of 4 in flight has no block for "b", which ends: 3 blocks without a copy."""
    engine = make_engine(cpu_blocks=5, copy_steps=6)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.add("b", prompt(1, 3))
    engine.step()
    engine.finish("b")
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    run(engine, "c", prompt(1, 3))
    assert told(engine, "c") == ("never_stored", "cpu_full", 0, 3, 0)


def test_block_whose_copy_failed_was_never_stored(make_engine, told):
    engine = make_engine(cpu_blocks=33, policy=OFF)
    engine.conditions.fails = lambda rank, is_store: is_store
    run(engine, "a", prompt(0, 3))
    engine.conditions.fails = lambda rank, is_store: False
    run(engine, "b", prompt(0, 3))
    assert told(engine, "b") == ("never_stored", "copy_failed", 0, 3, 0)


def test_block_of_a_window_model_that_was_dropped_was_never_stored(make_engine, told):
    """4 blocks and the window's pages want 8 places; the tier has 4, all of them in flight."""
    engine = make_engine(cpu_blocks=5, copy_steps=6, groups=[full_attention(), sliding_window(64)])
    engine.add("a", prompt(0, 2))
    engine.steps(2)
    engine.add("b", prompt(1, 2))
    engine.step()
    engine.finish("b")
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    run(engine, "c", prompt(1, 2))
    assert told(engine, "c")[:3] == ("never_stored", "cpu_full", 0)


# --- evicted ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hole", [0, 1, 2])
def test_hole_costs_all_that_lies_behind_it(make_engine, told, hole):
    """Of 4 blocks one is gone: the chain is cut there, 4 - hole are computed again, 3 - hole of them in vain."""
    engine = make_engine(cpu_blocks=33)
    run(engine, "a", prompt(0, 4))
    engine.evict("a", hole)
    run(engine, "b", prompt(0, 4))
    assert told(engine, "b") == ("evicted", "no_owner", hole, 4 - hole, 3 - hole)
    assert engine.sql("SELECT first_index, num_blocks, num_owned FROM blocks_missed") == [(hole, 1, 0)]


def test_eviction_while_the_owner_ran_says_that_a_restore_could_have_kept_it(make_engine, told):
    """In a tier of 7, "a" (4 blocks) runs on while "b" (6) takes its places. With re-store off nothing comes back."""
    engine = make_engine(cpu_blocks=8, policy=OFF)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.add("b", prompt(1, 6))
    engine.steps(2)
    for request_id in ("a", "b"):
        engine.finish(request_id)
    engine.settle()
    engine.forget_gpu_prefixes()
    run(engine, "c", prompt(0, 4))
    cause, detail, cut, lost, _ = told(engine, "c")
    assert (cause, detail, cut, lost) == ("evicted", "owner_running", 0, 4)
    ((by, was_owned, evicted_step, since, age),) = engine.sql(
        "SELECT by_request_id, was_owned, evicted_step, since_ns, age_ns FROM lookup WHERE request_id = 'c'"
    )
    ((step,),) = engine.sql("SELECT min(step) FROM blocks_evicted WHERE first_index = 0 AND by_request_id = 'b'")
    assert (by, was_owned, evicted_step) == ("b", 1, step)
    assert since > 0
    assert age > 0
    assert engine.sql("SELECT sum(num_blocks), sum(num_owned) FROM blocks_missed WHERE request_id = 'c'") == [(3, 3)]


def test_what_two_stores_evicted_is_missed_in_two_runs(make_engine, told):
    engine = make_engine(cpu_blocks=33)
    run(engine, "a", prompt(0, 6))
    engine.evict("a", 1, 2)
    engine.step()
    engine.evict("a", 4)
    run(engine, "b", prompt(0, 6))
    assert told(engine, "b") == ("evicted", "no_owner", 1, 5, 2)
    assert engine.sql("SELECT sum(num_blocks) FROM blocks_missed WHERE first_index <= 2") == [(2,)]
    assert engine.sql("SELECT first_index, num_blocks FROM blocks_missed WHERE first_index > 2") == [(4, 1)]


def test_lost_window_page_cuts_the_whole_prefix(make_engine, told):
    """Full attention has all 4 blocks. A hit of 4 needs the last two pages of a window of 32 tokens: one is gone."""
    engine = make_engine(cpu_blocks=33, groups=[full_attention(), sliding_window(32)])
    run(engine, "a", prompt(0, 4))
    engine.evict("a", 3, group=1)
    run(engine, "b", prompt(0, 4))
    cause, detail, *_ = told(engine, "b")
    assert (cause, detail) == ("evicted", "no_owner")


# --- in flight, reset, alignment --------------------------------------------------------------------------------------


def copying(make_engine, groups):
    """Block 0 lies in the tier and has left the GPU; the copy of the blocks behind it is on its way."""
    engine = make_engine(cpu_blocks=33, groups=groups, max_num_batched_tokens=BLOCK, max_num_seqs=8)
    engine.add("a", prompt(0, 3))
    engine.steps(2)
    assert engine.in_cpu("a", 0) == [True, False, False]
    engine.conditions.copy_steps = lambda rank, is_store: 50
    engine.steps(3)
    gpu = engine.scheduler.kv_cache_manager.block_pool
    for group in range(len(groups)):
        gpu.evict_blocks({gpu.cached_block_hash_to_block.get_one_block(engine.keys("a", group)[0]).block_id})
    engine.add("b", prompt(0, 3))
    engine.steps(2)
    return engine


@pytest.mark.parametrize("groups", [[full_attention()], [full_attention(), sliding_window(64)]], ids=["full", "window"])
def test_block_that_is_being_copied_is_in_flight(make_engine, told, groups):
    assert told(copying(make_engine, groups), "b")[:3] == ("in_flight", "copying", 1)


@pytest.mark.parametrize("groups", [[full_attention()], [full_attention(), sliding_window(64)]], ids=["full", "window"])
def test_block_that_another_request_is_computing_is_in_flight(make_engine, told, groups):
    """Two requests with the same prompt of 6 blocks come at once, and each may compute 2 blocks a step: the second
    finds the first two, which the first is given in the same step."""

    def two_blocks_a_step(config):
        config.scheduler_config.long_prefill_token_threshold = 2 * BLOCK

    engine = make_engine(cpu_blocks=33, groups=groups, configure=two_blocks_a_step)
    engine.add("a", prompt(0, 6))
    engine.add("b", prompt(0, 6))
    engine.steps(12)
    assert told(engine, "b") == ("in_flight", "computing", 2, 0, 0)
    assert engine.sql("SELECT by_request_id FROM lookup WHERE request_id = 'b'") == [("a",)]


@pytest.mark.parametrize("groups", [[full_attention()], [full_attention(), sliding_window(64)]], ids=["full", "window"])
def test_blocks_that_went_with_a_reset_say_so(make_engine, told, groups):
    engine = make_engine(cpu_blocks=33, groups=groups)
    run(engine, "a", prompt(0, 4))
    assert engine.reset_tier()
    run(engine, "b", prompt(0, 4))
    assert told(engine, "b") == ("reset", None, 0, 4, 0)


def test_after_a_reset_what_was_evicted_before_is_still_evicted(make_engine, told):
    engine = make_engine(cpu_blocks=33)
    run(engine, "a", prompt(0, 4))
    engine.evict("a", 0)
    engine.step()
    assert engine.reset_tier()
    run(engine, "b", prompt(0, 4))
    assert told(engine, "b") == ("evicted", "no_owner", 0, 4, 0)


def test_hit_ends_at_a_block_of_the_largest_group(make_engine, told):
    """Full attention in blocks of 32 tokens, hashes of 16: of 5 hash blocks the last two and a half cannot be used."""
    engine = make_engine(cpu_blocks=33, groups=[full_attention(32), sliding_window(32)])
    run(engine, "a", prompt(0, 6))
    run(engine, "b", prompt(0, 5))
    cause, detail, cut, *_ = told(engine, "b")
    assert (cause, detail, cut) == ("not_aligned", "FullAttentionSpec", 4)


def test_prefix_shorter_than_the_old_one_lacks_the_window_at_its_end(make_engine, told):
    """A window of 32 tokens keeps the pages at the old end only: a shorter prompt has its full blocks and no window."""
    engine = make_engine(
        cpu_blocks=64, gpu_blocks=64, groups=[full_attention(), sliding_window(32)], max_num_batched_tokens=8 * BLOCK
    )
    run(engine, "a", prompt(0, 16))
    keys = engine.keys("a", 1)
    for key in keys[:12]:
        engine.evict_key(key)
    run(engine, "b", prompt(0, 8))
    cause, detail, *_ = told(engine, "b")
    assert (cause, detail) in {("not_aligned", "SlidingWindowSpec"), ("evicted", "no_owner")}


def test_prompt_that_a_waiting_request_announced_is_not_in_flight(make_engine, told):
    """By priority "b" is admitted first: nobody is computing what it wants."""

    def by_priority(config):
        config.scheduler_config.policy = "priority"

    engine = make_engine(cpu_blocks=33, configure=by_priority)
    engine.add("a", prompt(0, 4), priority=5)
    engine.add("b", prompt(0, 4), priority=1)
    engine.steps(2)
    assert told(engine, "b") == ("never_seen", "never_computed", 0, 0, 0)


def test_block_that_a_draft_head_has_computed_again_falls_to_the_last_token_rule(make_engine, told):
    """EAGLE drops the last block that is found: 4 lie in the tier, 3 are taken."""
    engine = make_engine(cpu_blocks=33, num_draft_tokens=2)
    run(engine, "a", prompt(0, 4))
    run(engine, "b", prompt(0, 4))
    assert told(engine, "b")[:3] == ("last_token_rule", "draft_head", 3)


def test_preempted_request_that_finds_less_says_what_it_lost(make_engine, told):
    """Its own 4 blocks were stored; one is evicted while it waits to go on."""
    engine = make_engine(cpu_blocks=33, policy=OFF)
    engine.add("a", prompt(0, 4))
    engine.steps(3)
    engine.preempt_all()
    engine.forget_gpu_prefixes()
    engine.evict("a", 1)
    engine.steps(2)
    cause, _, cut, lost, _ = told(engine, "a")
    assert (cause, cut, lost) == ("evicted", 1, 3)

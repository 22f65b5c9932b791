import { describe, expect, test } from "vitest";
import type { BlockMoment, ChainBlock, EventRow, RequestDetail } from "../src/api/types";
import { buildLane, cellLetter, columnOf, foldColumns, type LaneRow } from "../src/lib/lane";
import recorded from "./fixtures/request.json";

type History = [seq: number, step: number, kind: BlockMoment["kind"]][];

function block(index: number, source: ChainBlock["source"], history: History): ChainBlock {
  return {
    index,
    hash: String(index).repeat(64),
    source,
    why_missing: null,
    is_in_cpu_tier: false,
    num_moments: history.length,
    history: history.map(([seq, step, kind]) => ({
      seq,
      step,
      wall_ns: seq * 1e6,
      kind,
      kv_group: 0,
      request_id: null,
      by_request_id: null,
    })),
  };
}

/** A request whose lookup is row 100 of the log. */
function detail(chain: ChainBlock[]): RequestDetail {
  const lookup: EventRow = {
    seq: 100,
    engine_id: 1,
    step: 50,
    wall_ns: 100e6,
    monotonic_ns: 0,
    kind: "lookup",
    request_id: "r",
    data: {},
  };
  const request = { ...(recorded as unknown as RequestDetail).request, gpu_hit_tokens: 32, cpu_hit_tokens: 32 };
  const read = { history_first_seq: null, history_last_seq: 200, is_chain_complete: true };
  const evidence = {
    cut: null,
    missed: [],
    lane: [],
    is_lane_complete: true,
    saved_tokens: null,
    saved_prefill_s: null,
  };
  return { request, hash_block_size: 32, chain, ...read, ...evidence, conversation_id: null, events: [lookup] };
}

const states = (row: LaneRow | undefined) => row?.cells.map((cell) => cell.state);
const letters = (row: LaneRow | undefined) => row?.cells.map((cell) => cellLetter(cell, row.type)).join("|");

describe("the block lane", () => {
  // Block 0 is on the GPU, 1 was re-stored before and hit, 2 was evicted and missed, 3 lay there behind the cut,
  // 4 was never there. Later 2 is stored again, and in one step 3 is evicted and stored at once.
  const chain = [
    block(0, "gpu", []),
    block(1, "cpu", [
      [10, 1, "blocks_stored"],
      [20, 2, "blocks_evicted"],
      [30, 3, "blocks_restored"],
      [105, 51, "blocks_loaded"],
    ]),
    block(2, "missing", [
      [11, 1, "blocks_stored"],
      [40, 4, "blocks_evicted"],
      [110, 52, "blocks_stored"],
    ]),
    block(3, "computed", [
      [12, 1, "blocks_stored"],
      [120, 53, "blocks_evicted"],
      [121, 53, "blocks_stored"],
    ]),
    block(4, "computed", []),
  ];
  const lane = buildLane(detail(chain));

  test("the lookup's row tells hits, the missing block, and what lay usable behind the cut", () => {
    expect(states(lane.rows[0])).toEqual(["gpu", "cpu_restored", "missing", "beyond", "computed"]);
    expect(letters(lane.rows[0])).toBe("G|R|×|b|");
    expect([lane.cut, lane.numBeyond]).toEqual([2, 1]);
  });

  test("the second row is the CPU tier as it stood at the lookup", () => {
    expect(states(lane.rows[1])).toEqual(["none", "in_restored", "out", "in", "none"]);
  });

  test("time runs down, a row for each step that changed something, only changes lettered", () => {
    expect(lane.rows.slice(2).map((row) => row.step)).toEqual([51, 52, 53]);
    expect(letters(lane.rows[2])).toBe("|L|||");
    expect(states(lane.rows[2])).toEqual(["none", "in_restored", "out", "in", "none"]);
    expect(states(lane.rows[3])).toEqual(["none", "in_restored", "in", "in", "none"]);
    expect(states(lane.rows[4])).toEqual(["none", "in_restored", "in", "in", "none"]);
    expect(letters(lane.rows[4])).toBe("|||S|");
  });

  test("only the newest moments are drawn, from the state that the older ones left", () => {
    const short = buildLane(detail(chain), 1);
    expect(short.numHiddenMoments).toBe(2);
    expect(short.rows.slice(2).map((row) => row.step)).toEqual([53]);
    expect(states(short.rows[2])?.[2]).toBe("in");
  });

  test("an emptied tier loses every block", () => {
    const reset = buildLane(
      detail([
        block(0, "cpu", [
          [10, 1, "blocks_stored"],
          [130, 60, "cache_reset"],
        ]),
      ]),
    );
    expect(states(reset.rows.at(-1))).toEqual(["out"]);
  });

  test("a request that was not looked up has no lookup row and no cut", () => {
    const waiting = detail([block(0, "pending", [])]);
    waiting.events = [];
    waiting.request.gpu_hit_tokens = null;
    const lane = buildLane(waiting);
    expect(lane.rows.map((row) => row.type)).toEqual(["then"]);
    expect(lane.cut).toBeNull();
  });

  test("a chain that fits is not folded, a longer one folds runs of equal blocks with a count", () => {
    const long = buildLane(detail([...Array(6).keys()].map((i) => block(i, i < 4 ? "gpu" : "computed", []))));
    expect(foldColumns(long, 6)).toHaveLength(6);
    const folded = foldColumns(long, 5);
    expect(folded).toEqual([
      { first: 0, num: 4 },
      { first: 4, num: 2 },
    ]);
    expect(columnOf(folded, 5)).toBe(1);
  });

  test("a recorded request is drawn as its lookup says", () => {
    const lane = buildLane(recorded as unknown as RequestDetail);
    const { request, hash_block_size: size } = recorded;
    const row = states(lane.rows[0]) ?? [];
    expect(row.filter((state) => state === "cpu" || state === "cpu_restored")).toHaveLength(
      request.cpu_hit_tokens / size,
    );
    expect(row.indexOf("missing")).toBe(request.cut_index);
  });
});

import { describe, expect, test } from "vitest";
import type { EventRow, RequestDetail, LaneRow as ServerRow } from "../src/api/types";
import {
  buildLane,
  cellLetter,
  columnOf,
  cropRows,
  foldColumns,
  type Lane,
  lastChange,
  stateAt,
  touchesAt,
} from "../src/lib/lane";
import recorded from "./fixtures/request.json";

const LETTERS: Readonly<Record<string, ServerRow["spans"][number]["state"]>> = {
  ".": "absent",
  c: "cached",
  r: "restored",
  G: "gpu_hit",
  C: "cpu_hit",
  R: "restored_hit",
  x: "missing",
  b: "behind",
  n: "computed",
};

/** A row of the server: row `seq` of the log, `stood` a letter a block. */
function row(seq: number, step: number, kind: string, touched: [number, number], stood: string, by = ""): ServerRow {
  return {
    seq,
    step,
    wall_ns: seq * 1e6,
    kind,
    request_id: kind === "blocks_evicted" ? null : "r",
    by_request_id: by || null,
    kv_group: 0,
    first_index: touched[0],
    num_blocks: touched[1],
    spans: (stood.match(/(.)\1*/g) ?? []).map((run) => ({
      state: LETTERS[run[0] ?? ""] ?? "absent",
      num_blocks: run.length,
    })),
  };
}

function event(seq: number, step: number, kind: string): EventRow {
  return { seq, engine_id: 1, step, wall_ns: seq * 1e6, monotonic_ns: 0, kind, request_id: "r", data: {} };
}

/** A request of five hashed blocks, the last of them its answer's, with this lane. */
function detail(lane: ServerRow[], events: EventRow[] = [], firstIndex = 0): RequestDetail {
  const chain = [...Array(5).keys()].map((i) => ({
    index: firstIndex + i,
    hash: String(i).repeat(64),
    source: "computed" as const,
    why_missing: null,
    is_in_cpu_tier: false,
    num_moments: 0,
    history: [],
  }));
  const request = { ...(recorded as unknown as RequestDetail).request, num_blocks: firstIndex + 4 };
  const read = { history_first_seq: null, history_last_seq: 200, is_chain_complete: true, is_lane_complete: true };
  const saved = { cut: null, missed: [], saved_tokens: null, saved_prefill_s: null, conversation_id: null };
  return { request, hash_block_size: 32, chain, ...read, ...saved, lane, events };
}

/** How all blocks stood, a letter each as above; `-` for what came later. */
function states(lane: Lane, at: number): string {
  const letterOf = new Map(Object.entries(LETTERS).map(([letter, state]) => [state, letter]));
  return [...Array(lane.numBlocks).keys()]
    .map((place) => {
      const found = lane.rows[at] && stateAt(lane.rows[at], place);
      return found === "later" ? "-" : (found && letterOf.get(found)) || "?";
    })
    .join("");
}

function letters(lane: Lane, at: number): string {
  return [...Array(lane.numBlocks).keys()]
    .map((place) => (lane.rows[at] && cellLetter(lane.rows[at], place)) || ".")
    .join("");
}

describe("the block lane", () => {
  // Four blocks were stored, two of them evicted and one of these re-stored; the lookup found one on the GPU, one on the
  // CPU, was cut at the third, and the fourth lay behind. Later, in one step, the second is loaded and the third stored;
  // in another the fourth goes and is stored again. The answer fills the fifth, the request ends, the first goes.
  const rows = [
    row(10, 1, "blocks_stored", [0, 4], "cccc."),
    row(20, 2, "blocks_evicted", [1, 2], "c..c.", "other"),
    row(30, 3, "blocks_restored", [1, 1], "cr.c."),
    row(100, 50, "lookup", [0, 5], "GRxbn"),
    row(105, 51, "blocks_loaded", [1, 1], "cr.c."),
    row(106, 51, "blocks_stored", [2, 1], "crcc."),
    row(120, 53, "blocks_evicted", [3, 1], "crc..", "third"),
    row(121, 53, "blocks_stored", [3, 1], "crcc."),
    row(130, 60, "blocks_stored", [4, 1], "crccc"),
    row(150, 70, "blocks_evicted", [0, 1], ".rccc", "fourth"),
  ];
  const lane = buildLane(detail(rows, [event(99, 50, "request_started"), event(140, 61, "request_finished")]));

  test("time runs down: a row a step that changed something, the lookup and the end among them", () => {
    expect(lane.rows.map(({ type, label, step }) => label || `${type} ${step}`)).toEqual([
      "moment 1",
      "moment 2",
      "moment 3",
      "lookup",
      "moment 51",
      "moment 53",
      "moment 53",
      "moment 60",
      "ended",
      "moment 70",
    ]);
  });

  test("the lookup's row tells hits, the missing block, what lay usable behind, and what came only later", () => {
    expect(lane.lookupRow).toBe(3);
    expect(states(lane, 3)).toBe("GRxb-");
    expect(letters(lane, 3)).toBe("GR×b.");
    expect([lane.cut, lane.numBehind]).toEqual([2, 1]);
  });

  test("a row shows how all stood after it, and letters what it changed", () => {
    expect([states(lane, 1), letters(lane, 1)]).toEqual(["c..c.", ".EE.."]);
    expect([states(lane, 2), letters(lane, 2)]).toEqual(["cr.c.", ".R..."]);
    expect([states(lane, 9), letters(lane, 9)]).toEqual([".rccc", "E...."]);
  });

  test("what one step did stands in one row", () => {
    expect([states(lane, 4), letters(lane, 4)]).toEqual(["crcc.", ".LS.."]);
  });

  test("a step that did two things to one block has two rows, so that neither hides the other", () => {
    expect([letters(lane, 5), letters(lane, 6)]).toEqual(["...E.", "...S."]);
  });

  test("a cell knows who changed it, in its own row or before", () => {
    expect(touchesAt(lane.rows[1] as never, 2).map(({ byRequestId }) => byRequestId)).toEqual(["other"]);
    const change = lastChange(lane, 4, 1);
    // The load of step 51 changed nothing: the copy is there since the re-store.
    expect([change?.kind, change?.step]).toEqual(["blocks_restored", 3]);
    expect(lastChange(lane, 3, 2)?.byRequestId).toBe("other");
    expect(lastChange(lane, 0, 4)).toBeNull();
  });

  test("rows far from the lookup are left out until they are asked for", () => {
    const few = cropRows(lane, 1, 2);
    expect([few.before, few.after]).toEqual([2, 4]);
    expect(few.lane.rows.map(({ step }) => step)).toEqual([3, 50, 51, 53]);
    expect(few.lane.lookupRow).toBe(1);
    expect(cropRows(lane, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY).lane.rows).toHaveLength(10);
  });

  test("a request that was not looked up has no cut, and shows the newest", () => {
    const waiting = buildLane(detail(rows.slice(0, 3)));
    expect([waiting.lookupRow, waiting.cut, waiting.numBehind]).toEqual([null, null, 0]);
    expect(cropRows(waiting, 2, 0).lane.rows.map(({ step }) => step)).toEqual([2, 3]);
  });

  test("a chain to which nothing has happened is one empty row", () => {
    const idle = buildLane(detail([]));
    expect([idle.rows.length, states(idle, 0)]).toEqual([1, "....."]);
  });

  test("a chain whose head the log lost counts from where it begins", () => {
    const headless = buildLane(detail([row(10, 1, "blocks_stored", [7, 2], "cc...")], [], 7));
    expect([headless.firstIndex, letters(headless, 0)]).toEqual([7, "SS..."]);
  });

  test("a chain that fits is not folded, a longer one folds runs of equal blocks with a count", () => {
    const long = buildLane(detail([row(10, 1, "blocks_stored", [0, 3], "ccc..")]));
    expect(foldColumns(long, 5)).toHaveLength(5);
    const folded = foldColumns(long, 4);
    expect(folded).toEqual([
      { first: 0, num: 3 },
      { first: 3, num: 2 },
    ]);
    expect(columnOf(folded, 4)).toBe(1);
  });

  test("blocks that looked different once are not folded together, though they are equal now", () => {
    const apart = [row(10, 1, "blocks_stored", [0, 1], "c...."), row(11, 2, "blocks_stored", [1, 4], "ccccc")];
    expect(foldColumns(buildLane(detail(apart)), 3)).toEqual([
      { first: 0, num: 1 },
      { first: 1, num: 4 },
    ]);
  });

  test("a recorded request is drawn as its lookup says", () => {
    const drawn = buildLane(recorded as unknown as RequestDetail);
    const { request, hash_block_size: size } = recorded;
    const found = states(drawn, drawn.lookupRow ?? -1);
    expect(found.replace(/[^CR]/g, "")).toHaveLength(request.cpu_hit_tokens / size);
    expect(found.indexOf("x")).toBe(request.cut_index);
  });
});

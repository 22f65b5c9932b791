import { describe, expect, test } from "vitest";
import { engineMark, engineWords, wasUp } from "../src/lib/engines";
import { groupRatios, touchesBlock } from "../src/lib/events";
import recorded from "./fixtures/engines.json";

describe("engines", () => {
  test("are named by their rank, and by the start where a rank was started twice", () => {
    const engines = [
      { id: 3, dp_index: 0 },
      { id: 4, dp_index: 1 },
      { id: 7, dp_index: 1 },
    ];
    expect([3, 4, 7, 9].map((id) => engineMark(id, engines))).toEqual(["0", "1·4", "1·7", "·9"]);
    expect(engineWords(7, engines)).toBe("engine 1, start 7");
  });

  test("one that stopped was up until then, one that went silent until its last heartbeat, a live one still is", () => {
    const engine = { started_wall_ns: 100, heartbeat_wall_ns: 150, stopped_wall_ns: 200, is_live: false };
    const silent = { ...engine, stopped_wall_ns: null };
    const live = { ...silent, is_live: true };
    const at = (...lives: (typeof live | typeof engine)[]) =>
      [0, 90, 140, 190, 500].map((from) => (wasUp(from, from + 20, lives) ? 1 : 0)).join("");
    expect(at(engine)).toBe("01110");
    expect(at(silent)).toBe("01100");
    expect(at(live)).toBe("01111");
    expect(at({ ...engine, started_wall_ns: 300, stopped_wall_ns: 600 }, engine)).toBe("01111");
    expect(at()).toBe("00000");
  });

  test("an event of a group whose blocks are larger touches all the hash blocks in its run", () => {
    const wide = { ...recorded[0], kv_groups: [{ block_size: 32 }, { block_size: 64 }] } as never;
    expect(groupRatios(wide, 32)).toEqual([1, 2]);
    const data = { kv_group: 1, first_index: 2, num_blocks: 1 };
    const event = { seq: 1, engine_id: 1, step: 1, wall_ns: 0, monotonic_ns: 0, kind: "blocks_stored", data } as never;
    const touched = [...Array(8).keys()].filter((i) => touchesBlock(event, i, [1, 2]));
    expect(touched).toEqual([4, 5]);
  });
});

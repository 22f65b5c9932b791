import { describe, expect, test } from "vitest";
import type { CauseRow, Causes } from "../src/api/types";
import { CAUSE_ORDER, CAUSES, causeOf, cutWords, detailOf, lossWords } from "../src/lib/causes";
import { causeRows, examplesOf, lossBuckets, lostByCause } from "../src/lib/losses";

const plain = (text: string) => text.replace(/[\u202f\u00a0]/g, " ");

function row(cause: string | null, detail: string | null, lost_tokens: number, num_lookups: number): CauseRow {
  return { cause, detail, lost_tokens, num_lookups, prompt_tokens: 1000, behind_tokens: 0, lost_share: 0.1 };
}

const ANSWER: Causes = {
  since_wall_ns: 0,
  until_wall_ns: 20,
  bucket_ns: 10,
  num_lookups: 17,
  prompt_tokens: 4000,
  gpu_hit_tokens: 0,
  cpu_hit_tokens: 0,
  lost_tokens: 900,
  behind_tokens: 0,
  causes: [
    row(null, null, 0, 3),
    row("never_seen", "new_head", 0, 9),
    row("evicted", "no_owner", 500, 2),
    row("never_stored", "cpu_full", 100, 1),
    row("evicted", "owner_running", 300, 2),
  ],
  points: [
    { wall_ns: 0, prompt_tokens: 100, lost_tokens: { never_stored: 100, evicted: 200 } },
    { wall_ns: 10, prompt_tokens: null, lost_tokens: {} },
  ],
  examples: [],
  directory: null,
};

describe("causes", () => {
  test("each of the closed list has a letter and a look of its own, so that none needs its colour to be told", () => {
    expect(CAUSE_ORDER.sort()).toEqual(
      [
        "never_seen",
        "never_stored",
        "evicted",
        "in_flight",
        "shorter_than_a_block",
        "last_token_rule",
        "not_aligned",
        "cache_skipped",
        "reset",
      ].sort(),
    );
    const marks = Object.values(CAUSES).map(({ mark }) => mark);
    expect(new Set(marks).size).toBe(marks.length);
  });

  test("one that this page does not know is shown by its name", () => {
    expect(causeOf("cosmic_ray").label).toBe("cosmic ray");
    expect(detailOf("cosmic_ray", "from_the_left").label).toBe("from the left");
  });

  test("what a running request lost leads to the switch, what nobody had any more to the what-if", () => {
    expect(detailOf("evicted", "owner_running").view).toBe("policy");
    expect(detailOf("evicted", "no_owner").view).toBe("whatif");
  });

  test("a limit of the model names the kind of group that sets it", () => {
    expect(detailOf("not_aligned", "SlidingWindowSpec").label).toBe("SlidingWindowSpec");
  });

  test("a row says when the missing block was evicted and by whom", () => {
    const cut = { cause: "evicted", detail: "no_owner", sinceNs: 3.1e9, byRequestId: "chatcmpl-19bc0000aaaabbbb" };
    expect(plain(cutWords(cut))).toBe("evicted 3.1 s before by 19bc0000");
    expect(cutWords({ cause: "never_seen", detail: "departs", byRequestId: "r1" })).toBe("departs from r1");
    expect(cutWords({ cause: "never_seen", detail: "extends" })).toBe("new content");
    expect(cutWords({ cause: "never_stored", detail: "budget" })).toBe("never stored: the step's budget was used up");
    expect(cutWords({ cause: null, detail: null })).toBe("");
  });

  test("a lookup that lost nothing says nothing of a loss", () => {
    expect(lossWords(0)).toBe("");
    expect(lossWords(null)).toBe("");
    expect(plain(lossWords(1216))).toBe("1 216 tokens lost");
  });
});

describe("losses", () => {
  test("stack in one order in every bucket, whatever the answer's order was", () => {
    expect(lossBuckets(ANSWER, null)[0]).toEqual({
      wall_ns: 0,
      lost: [
        { cause: "evicted", tokens: 200 },
        { cause: "never_stored", tokens: 100 },
      ],
      total: 300,
    });
    expect(lossBuckets(ANSWER, null)[1]?.total).toBe(0);
  });

  test("of one cause leave the others out", () => {
    expect(lossBuckets(ANSWER, "never_stored").map(({ total }) => total)).toEqual([100, 0]);
    expect(causeRows(ANSWER, "evicted").map(({ detail }) => detail)).toEqual(["no_owner", "owner_running"]);
  });

  test("add up over a cause's details", () => {
    expect(lostByCause(ANSWER)).toEqual([
      { cause: "evicted", tokens: 800, lookups: 4 },
      { cause: "never_stored", tokens: 100, lookups: 1 },
    ]);
  });

  test("stand by size, then by how often; lookups that found everything stand last", () => {
    expect(causeRows(ANSWER, null).map(({ cause, detail }) => `${cause} ${detail}`)).toEqual([
      "evicted no_owner",
      "evicted owner_running",
      "never_stored cpu_full",
      "never_seen new_head",
      "null null",
    ]);
  });

  test("show the examples of their own detail only", () => {
    const example = { cause: "evicted", detail: "no_owner", seq: 1 } as Causes["examples"][number];
    const answer = { ...ANSWER, examples: [example, { ...example, detail: "owner_running", seq: 2 }] };
    expect(examplesOf(answer, { cause: "evicted", detail: "owner_running" }).map(({ seq }) => seq)).toEqual([2]);
  });
});

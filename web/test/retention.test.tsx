import { cleanup, render, screen, within } from "@testing-library/preact";
import { afterEach, describe, expect, test } from "vitest";
import type { RetentionState, RetentionView } from "../src/api/types";
import { idleWords, points, ruleReason, worthLines } from "../src/lib/retention";
import { retention } from "../src/state/evidence";
import { RetentionPanel } from "../src/views/Retention";

const plain = (text: string | null) => (text ?? "").replace(/[\u202f\u00a0]/g, " ");
const EDGES = [0, 0.5, 0.7, 1, 1.4, 2];
const STATE: RetentionState = {
  step: 40,
  wall_ns: 1_790_000_000_000_000_000,
  rule: "worth",
  is_guard_on: false,
  lru_hit_rate: 0.134,
  worth_hit_rate: 0.391,
  asked_blocks: 9120.4,
  guard_lead: 0.01,
  num_reuses: 212,
  num_to_learn: 8,
  horizon_s: 41,
  edges_s: EDGES,
  classes: [
    { turns: 0, returns: 0, worth: [0, 0, 0, 0, 0, 0] },
    { turns: 1, returns: 30, worth: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6] },
    { turns: 2, returns: 4, worth: [0.9, 0.8, 0.7, 0.6, 0.5, 0.4] },
    { turns: 3, returns: 0.4, worth: [0.9, 0.9, 0.9, 0.9, 0.9, 0.9] },
    { turns: 4, returns: 0, worth: [0.9, 0.9, 0.9, 0.9, 0.9, 0.9] },
    { turns: null, returns: 50, worth: [0.5, 0.5, 0.5, 0.5, 0.5, 0.5] },
  ],
};
const VIEW: RetentionView = {
  engine_id: 1,
  retention: "adaptive",
  since_wall_ns: STATE.wall_ns - 60e9,
  state: STATE,
  rule: "worth",
  rule_since_wall_ns: STATE.wall_ns - 30e9,
  switches: [
    {
      seq: 9,
      step: 20,
      wall_ns: STATE.wall_ns - 30e9,
      from_rule: "lru",
      to_rule: "worth",
      reason: "learned",
      lru_hit_rate: 0.25,
      worth_hit_rate: 0.25,
      asked_blocks: 80,
      num_reuses: 8,
    },
  ],
  num_switches: 1,
  evicted_blocks: 1200,
  evicted_by_worth_blocks: 900,
  num_refusals: 34,
};
const UNDER_LRU: RetentionView = {
  ...VIEW,
  retention: "lru",
  since_wall_ns: null,
  state: null,
  rule: null,
  rule_since_wall_ns: null,
  switches: [],
  num_switches: null,
  evicted_blocks: null,
  evicted_by_worth_blocks: null,
  num_refusals: null,
};

describe("the learned curve", () => {
  test("has a line for each class of which something came back, and names the others", () => {
    const { lines, unseen } = worthLines(STATE);
    expect(lines.map(({ name }) => name)).toEqual(["■ 1st turn", "◆ 2nd turn", "▽ shared heads"]);
    expect(unseen).toEqual(["left behind", "3rd turn", "later turns"]);
    expect(new Set(lines.map(({ style }) => style)).size).toBe(3);
  });

  test("has a point where idle time begins and one at each doubling, with its words", () => {
    const points = worthLines(STATE).lines[0]?.points ?? [];
    expect(points.map(({ x, y }) => [x, y])).toEqual([
      [0.25, 0.1],
      [0.5, 0.2],
      [1, 0.4],
      [2, 0.6],
    ]);
    expect(plain(points[0]?.words ?? "")).toBe("1st turn, idle for 0 s: worth 10.0 %");
    expect(plain(points[3]?.words ?? "")).toBe("1st turn, idle for 2 s: worth 60.0 %");
  });

  test("names idle times and rates as people read them", () => {
    expect([0.25, 0.5, 1, 32, 64, 2048].map((s) => plain(idleWords(s)))).toEqual([
      "0 s",
      "0.5 s",
      "1 s",
      "32 s",
      "1 m",
      "34 m",
    ]);
    expect([points(null), plain(points(0)), plain(points(0.1345))]).toEqual(["—", "0.0 %", "13.5 %"]);
  });
});

describe("why it goes by its rule", () => {
  test("too little was learned, the guard is on, or what was learned is trusted", () => {
    const early = { ...STATE, rule: "lru", num_reuses: 3 } as const;
    expect(plain(ruleReason("lru", early))).toBe(
      "it has seen 3 chains come back, and trusts what it learned from 8 on",
    );
    const guarded = { ...STATE, rule: "lru", is_guard_on: true, lru_hit_rate: 0.5 } as const;
    expect(plain(ruleReason("lru", guarded))).toBe(
      "the guard is on: of what was asked for of late its shadow by last use found 50.0 %, the one by worth 39.1 %",
    );
    expect(plain(ruleReason("worth", STATE))).toContain("it has seen 212 chains come back");
  });
});

describe("the panel", () => {
  afterEach(() => {
    cleanup();
    retention.clear();
  });
  const panel = () => screen.getByRole("region", { name: "Which block goes for a new one" });
  const rule = () => plain(screen.getByTestId("rule").textContent);

  test("says the rule, both shadows side by side, and the counts", () => {
    retention.data.value = VIEW;
    render(<RetentionPanel />);
    expect(rule()).toMatch(/^Blocks go by worth since /);
    expect(rule()).toContain("The engine is gone; it said so");
    within(panel()).getByRole("img", { name: /^shadow by last use: 13.%$/ });
    within(panel()).getByRole("img", { name: /^shadow by worth: 39.%$/ });
    expect(plain(panel().textContent)).toContain("1 200, 900 by worth");
    expect(screen.getByRole("link", { name: /34/ }).getAttribute("href")).toContain("kind=stores_refused");
    expect(within(screen.getByRole("list")).getAllByRole("listitem")).toHaveLength(1);
  });

  test("goes by the change of rule that is newer than what was said last", () => {
    retention.data.value = { ...VIEW, rule: "lru", state: { ...STATE, is_guard_on: true } };
    render(<RetentionPanel />);
    expect(rule()).toMatch(/^Blocks go by last use since .*the guard is on/);
  });

  test("under vLLM's own order says what would stand here and where it is switched", () => {
    retention.data.value = UNDER_LRU;
    render(<RetentionPanel />);
    expect(rule()).toContain("Blocks go in vLLM's own order");
    expect(screen.getByRole("link", { name: "Switch retention" }).getAttribute("href")).toContain("#/policy");
    expect(screen.queryByRole("list")).toBeNull();
  });

  test("that has learned nothing, said nothing, was not read or failed to be says so", () => {
    render(<RetentionPanel />);
    expect(panel().textContent).toContain("Reading the rule…");
    cleanup();
    retention.error.value = "the log cannot be read now";
    render(<RetentionPanel />);
    expect(screen.getByRole("alert").textContent).toContain("the log cannot be read now");
    expect(panel().textContent).not.toContain("Reading");
    cleanup();
    retention.error.value = null;
    retention.data.value = { ...VIEW, state: null, rule: null };
    render(<RetentionPanel />);
    expect(panel().textContent).toContain("has said nothing yet");
    cleanup();
    const classes = STATE.classes.map((each) => ({ ...each, returns: 0 }));
    retention.data.value = { ...VIEW, state: { ...STATE, classes } };
    render(<RetentionPanel />);
    expect(panel().textContent).toContain("Nothing came back yet");
  });
});

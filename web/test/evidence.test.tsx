// The views of the evidence over answers that the API gave for a recorded log.
import { cleanup, fireEvent, render, screen, within } from "@testing-library/preact";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type {
  BenefitView as BenefitData,
  Causes,
  ConversationDetail,
  ConversationPage,
  Engine,
  RequestDetail,
  Shadows,
  Tier,
} from "../src/api/types";
import { Histogram } from "../src/draw/Histogram";
import { benefit, causes, conversation, conversations, shadows, tier } from "../src/state/evidence";
import { setParams } from "../src/state/location";
import { engines } from "../src/state/log";
import { BenefitPage } from "../src/views/Benefit";
import { ConversationView } from "../src/views/Conversation";
import { ConversationsView } from "../src/views/Conversations";
import { CutPanel } from "../src/views/CutPanel";
import { MissesView } from "../src/views/Misses";
import { ShadowKeys } from "../src/views/ShadowKeys";
import { TierView } from "../src/views/TierMap";
import { WhatIfView } from "../src/views/WhatIf";
import recordedBenefit from "./fixtures/benefit.json";
import recordedCauses from "./fixtures/causes.json";
import recordedConversation from "./fixtures/conversation.json";
import recordedConversations from "./fixtures/conversations.json";
import recordedEngines from "./fixtures/engines.json";
import recordedRequest from "./fixtures/request.json";
import recordedTier from "./fixtures/tier.json";

const CAUSES = recordedCauses as unknown as Causes;
const BENEFIT = recordedBenefit as unknown as BenefitData;
const ENGINES = recordedEngines as unknown as Engine[];

const text = (element: Element = document.body) => (element.textContent ?? "").replace(/[\u202f\u00a0]/g, " ");
const answer = () => text(screen.getByTestId("answer"));
const digits = (value: number) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, " ");

beforeEach(() => {
  engines.data.value = ENGINES;
});

afterEach(() => {
  cleanup();
  setParams({ cause: null, block: null, by: null, order: null, hide: null, policies: null, gib: null }, true);
  for (const resource of [benefit, causes, conversation, conversations, shadows, tier, engines]) resource.clear();
});

describe("why it missed", () => {
  test("says what part of all prompt tokens was lost, and to what most", () => {
    causes.data.value = CAUSES;
    render(<MissesView />);
    const part = Math.round((CAUSES.lost_tokens / CAUSES.prompt_tokens) * 100);
    expect(answer()).toContain(`${part} % of ${digits(CAUSES.prompt_tokens)} prompt tokens`);
    expect(answer()).toContain("of that evicted");
  });

  test("has a row for each cause, with what to do about it", () => {
    causes.data.value = CAUSES;
    render(<MissesView />);
    const rows = within(screen.getByRole("region", { name: "Causes" }))
      .getAllByRole("row")
      .slice(1);
    expect(rows).toHaveLength(CAUSES.causes.length);
    expect(text()).toContain("Only a larger CPU tier keeps these");
  });

  test("leaves the other causes out where the address names one", () => {
    causes.data.value = CAUSES;
    setParams({ cause: "never_stored" }, true);
    render(<MissesView />);
    const rows = within(screen.getByRole("region", { name: "Causes" }))
      .getAllByRole("row")
      .slice(1);
    expect(rows).toHaveLength(CAUSES.causes.filter(({ cause }) => cause === "never_stored").length);
  });

  test("without a loss says so instead of drawing a zero", () => {
    causes.data.value = { ...CAUSES, lost_tokens: 0, behind_tokens: 0, causes: [], points: [], examples: [] };
    render(<MissesView />);
    expect(text()).toContain("Nothing was lost");
  });

  test("without traffic says so", () => {
    causes.data.value = { ...CAUSES, num_lookups: 0 };
    render(<MissesView />);
    expect(text()).toContain("No prompt was looked up");
    expect(screen.queryByRole("table")).toBeNull();
  });

  test("says what the directory has had to forget", () => {
    causes.data.value = { ...CAUSES, directory: { engine_id: 2, capacity: 65_536, num_forgotten: 1200 } };
    render(<MissesView />);
    expect(text()).toContain("has forgotten 1 200 so far");
  });

  test("an error stands in the server's words, and nothing seems to be read", () => {
    causes.error.value = "there is no log at /nowhere";
    render(<MissesView />);
    expect(text(screen.getByRole("alert"))).toContain("there is no log at /nowhere");
    expect(text()).not.toContain("Reading");
  });
});

describe("benefit", () => {
  test("tells what the hits spared and what the copies took", () => {
    benefit.data.value = BENEFIT;
    render(<BenefitPage />);
    expect(answer()).toContain(`${digits(BENEFIT.total.restore.hit_tokens)} prompt tokens`);
    expect(text()).toContain("Prefill takes 150 µs a token");
    expect(text()).toContain("50×");
    expect(text()).toContain(BENEFIT.verdict.replace(/[\u202f\u00a0]/g, " "));
  });

  test("a policy that did nothing has dashes, not zeros, for its ratio", () => {
    benefit.data.value = BENEFIT;
    render(<BenefitPage />);
    const off = within(screen.getByRole("region", { name: "Benefit by policy" })).getByRole("row", { name: /off v1/ });
    expect(text(off).endsWith("—")).toBe(true);
  });

  test("harm is called harm", () => {
    const total = { ...BENEFIT.total, saved_s: 1, spent_s: 0.5, displaced_s: 3, roi: 2 };
    benefit.data.value = { ...BENEFIT, total };
    render(<BenefitPage />);
    expect(answer()).toContain("it cost more than it gained");
  });

  test("a speed that is not known well enough leaves the verdict open, in the answer, the tag and the account", () => {
    const doubt = "how long a step took has little to do with its prefill tokens (R² 0.04)";
    const prefill = { ...BENEFIT.total.prefill, r_squared: 0.04, doubt };
    benefit.data.value = { ...BENEFIT, total: { ...BENEFIT.total, prefill }, holds: null };
    render(<BenefitPage />);
    expect(answer()).toContain(`What that spared cannot be told: ${doubt}`);
    expect(answer()).not.toContain("×");
    expect(text(screen.getByRole("region", { name: "The ratio that people quote" }))).toContain("cannot be told");
    expect(text(screen.getByRole("region", { name: "The account" }))).toContain(
      `Nothing can be concluded from prefill that was spared: ${doubt}`,
    );
  });

  test("each bar of the histogram can be read without seeing it", () => {
    const bars = [
      { from: "1 s", value: 3, words: "3 blocks wanted again after 1 s to 10 s" },
      { from: "10 s", value: 0, words: "0 blocks wanted again after 10 s or more" },
    ];
    render(<Histogram bars={bars} end="∞" width={600} height={170} label="Wanted" tone="lost" valueLabel={String} />);
    expect(screen.getAllByRole("img").map((bar) => bar.getAttribute("aria-label"))).toEqual(
      bars.map(({ words }) => words),
    );
    // In SVG the name of an attribute counts letter by letter: `tabIndex` is none.
    for (const bar of screen.getAllByRole("img")) expect(bar.getAttribute("tabindex")).toBe("0");
    const heights = [...document.querySelectorAll(".body")].map((bar) => Number(bar.getAttribute("height")));
    expect(heights[0]).toBeGreaterThan(0);
    expect(heights[1]).toBe(0);
  });
});

describe("conversations", () => {
  test("tell the hit rate by turn and lead to each", () => {
    const data = recordedConversations as unknown as ConversationPage;
    conversations.data.value = data;
    render(<ConversationsView />);
    const turns = within(screen.getByRole("region", { name: "Hit rate by turn" }))
      .getAllByRole("row")
      .slice(1);
    expect(turns).toHaveLength(Math.min(24, data.by_turn.length));
    const first = data.conversations[0];
    const link = screen.getAllByRole("link").find((each) => each.getAttribute("title") === first?.id);
    expect(link?.getAttribute("href")).toContain(`#/conversations/${encodeURIComponent(first?.id ?? "")}`);
  });

  test("one of them marks where it lost its prefix", () => {
    const data = recordedConversation as unknown as ConversationDetail;
    conversation.data.value = data;
    render(<ConversationView />);
    const lost = data.turns.filter((turn) => turn.lost_from_index !== null || turn.request.lost_tokens);
    expect(lost.length).toBeGreaterThan(0);
    expect(document.querySelectorAll(".cut-at")).toHaveLength(lost.length);
    expect(answer()).toContain("lost the prefix");
  });

  test("a cut at a block that nobody had computed is marked as harmless, and is said to be", () => {
    const data = recordedConversation as unknown as ConversationDetail;
    const turn = data.turns.find(({ lost_from_index }) => lost_from_index !== null);
    if (!turn) throw new Error("the recorded conversation has no turn that lost its prefix");
    const request = { ...turn.request, cause: "never_seen", cause_detail: "never_computed", lost_tokens: 0 };
    conversation.data.value = { ...data, turns: [{ ...turn, request, lost_from_index: null }] } as ConversationDetail;
    render(<ConversationView />);
    expect([...document.querySelectorAll(".cut-at")].map(({ className }) => className)).toEqual(["cut-at harmless"]);
    expect(text()).toContain("announced, and never computed");
    expect(text()).toContain("nothing was lost");
    expect(answer()).toContain("No turn lost");
  });
});

describe("a request's cut", () => {
  test("names the cause, who took the block and when, and every evicted block that it wanted", () => {
    const data = recordedRequest as unknown as RequestDetail;
    render(<CutPanel data={data} />);
    expect(text()).toContain(`at step ${digits(data.cut?.evicted_step ?? 0)}`);
    const rows = within(screen.getByRole("region", { name: "Evicted blocks that it wanted" })).getAllByRole("row");
    expect(rows).toHaveLength(data.missed.length + 1);
  });

  test("is left out where nothing was left to find", () => {
    const data = recordedRequest as unknown as RequestDetail;
    render(<CutPanel data={{ ...data, cut: data.cut && { ...data.cut, cause: null } }} />);
    expect(text()).toBe("");
  });
});

describe("the tier", () => {
  test("says how full it is and how much was copied for nothing", () => {
    const data = recordedTier as unknown as Tier;
    tier.data.value = data;
    render(<TierView />);
    expect(answer()).toContain(`of ${data.num_blocks} blocks`);
    expect(answer()).toContain(`${Math.round((data.churn ?? 0) * 100)} % of them without a hit`);
  });

  test("a pinned block tells who stored it and when it would go", () => {
    const data = recordedTier as unknown as Tier;
    const block = data.blocks.find(({ eviction_rank }) => eviction_rank !== null);
    tier.data.value = data;
    setParams({ block: String(block?.id) }, true);
    render(<TierView />);
    const rank = block?.eviction_rank ?? 0;
    expect(text()).toContain(rank === 0 ? "next" : `after ${rank} other`);
    expect(text()).toContain("stored by");
  });
});

const SHADOWS: Shadows = {
  engine_id: 2,
  is_caught_up: true,
  last_seq: 9,
  unsupported: null,
  hit_rate: 0.42,
  shadows: [shadow("off", 0.4), shadow("unlimited", 0.8)],
  error: { name: "active", percentage_points: -0.25, worst_percentage_points: 1.5 },
  curve: [
    { policy: "off", cpu_blocks: 50, cpu_bytes: 2 ** 29, hit_rate: 0.3 },
    { policy: "off", cpu_blocks: 100, cpu_bytes: 2 ** 30, hit_rate: 0.4 },
    { policy: "tracked", cpu_blocks: 100, cpu_bytes: 2 ** 30, hit_rate: 0.45 },
    { policy: "unlimited", cpu_blocks: null, cpu_bytes: null, hit_rate: 0.8 },
  ],
  notes: ["its hits would have changed when steps ran"],
};

function shadow(policy: string, hit_rate: number): Shadows["shadows"][number] {
  const counts = { cpu_hit_tokens: 0, gpu_hit_tokens: 0, restored_blocks: 0, stored_blocks: 0 };
  return { name: policy, policy, cpu_blocks: 100, cpu_bytes: 2 ** 30, hit_rate, points: [], ...counts };
}

describe("what if", () => {
  test("says how far the shadow is from the truth, and where it must differ", () => {
    shadows.data.value = SHADOWS;
    render(<WhatIfView />);
    expect(text(screen.getByTestId("trust"))).toContain("0.25 percentage points");
    expect(text()).toContain("its hits would have changed when steps ran");
  });

  test("compares each size with what the engine found", () => {
    shadows.data.value = SHADOWS;
    render(<WhatIfView />);
    const rows = within(screen.getByRole("region", { name: "Hit rate by policy and size" })).getAllByRole("row");
    expect(text(rows[1] ?? document.body)).toBe(" off512 MiB, 50 blocks30 %−12.0 pp");
  });

  test("a model that shadows cannot follow is said, not guessed", () => {
    shadows.data.value = { ...SHADOWS, unsupported: "it has a group of kind MambaSpec" };
    render(<WhatIfView />);
    expect(text()).toContain("it has a group of kind MambaSpec");
    expect(screen.queryByRole("table")).toBeNull();
  });

  test("sizes that are none are not sent", () => {
    shadows.data.value = SHADOWS;
    render(<WhatIfView />);
    const field = screen.getByRole<HTMLInputElement>("textbox", { name: /sizes/ });
    field.value = "1, -2";
    fireEvent.submit(field.form ?? field);
    expect(text(screen.getByRole("alert"))).toContain("greater than 0");
    expect(window.location.hash).not.toContain("gib");
  });

  test("a line of the timeline can be hidden by the address", () => {
    shadows.data.value = SHADOWS;
    render(<ShadowKeys />);
    const off = screen.getByRole("link", { name: /off/ });
    expect(off.getAttribute("href")).toContain("hide=active%2Coff");
  });
});

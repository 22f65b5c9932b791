import { cleanup, render, screen } from "@testing-library/preact";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { Engine, Glance, Summary } from "../src/api/types";
import { glance } from "../src/state/evidence";
import { setParams } from "../src/state/location";
import { engines, summary } from "../src/state/log";
import { Sentence } from "../src/views/Sentence";
import recordedEngines from "./fixtures/engines.json";
import recordedGlance from "./fixtures/glance.json";

const TOKENS = {
  prompt_tokens: 1000,
  gpu_hit_tokens: 300,
  cpu_hit_tokens: 200,
  restored_hit_tokens: 0,
  computed_tokens: 500,
  hit_rate: 0.5,
};

const SUMS: Summary = {
  since_wall_ns: 0,
  until_wall_ns: 1,
  tokens: TOKENS,
  last_minute: TOKENS,
  num_requests: 7,
  num_running: 3,
  stored_blocks: 0,
  restored_blocks: 0,
  evicted_blocks: 0,
  loaded_blocks: 0,
  dropped_blocks: 0,
  stored_bytes: 0,
  restored_bytes: 0,
  loaded_bytes: 0,
  ttft_p50_ns: 120_000_000,
  ttft_p90_ns: 480_000_000,
  num_faults: 0,
  num_events_dropped: 0,
  last_fault: null,
  cpu_tier: null,
  last_seq: 100,
};

const text = () => (document.body.textContent ?? "").replace(/[\u202f\u00a0]/g, " ");

/** An API that answers every summary with the same sums, and the addresses that it was asked for. */
function serveSums(): URL[] {
  const asked: URL[] = [];
  vi.stubGlobal("fetch", async (path: string) => {
    asked.push(new URL(path, "http://here"));
    return new Response(JSON.stringify(SUMS));
  });
  return asked;
}

function showLive(range: string): void {
  setParams({ range }, true);
  engines.data.value = (recordedEngines as Engine[]).map((engine) => ({ ...engine, is_live: true }));
  summary.data.value = SUMS;
  render(<Sentence />);
}

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  setParams({ range: null }, true);
  engines.clear();
  summary.clear();
  glance.clear();
});

describe("the sentence", () => {
  test("of a fixed piece of time tells its requests and their time to the first token, not what runs now", () => {
    showLive("1790000000000-1790000060000");
    expect(text()).toContain("50 % of 1 000 prompt tokens in this piece of time came from cache");
    expect(text()).toContain("7 requests, TTFT 120 ms median, 480 ms at p90.");
    expect(text()).not.toContain("running");
  });

  test("of a range that ends now tells what runs, too", () => {
    showLive("15m");
    expect(text()).toContain("7 requests, 3 running, TTFT 120 ms median");
  });
});

describe("what the sentence says was lost", () => {
  test("leads to the lookups that were cut at an evicted block, which prove both of its numbers", () => {
    glance.data.value = recordedGlance as Glance;
    showLive("15m");
    expect(text()).toContain("40 % were lost to CPU evictions; re-store could have saved 1 %.");
    for (const share of ["40 %", "1 %"]) {
      const link = screen.getAllByRole("link").find(({ textContent }) => textContent?.replace(/\s/g, " ") === share);
      expect(link?.getAttribute("href")).toBe("#/misses?cause=evicted&range=15m");
    }
  });
});

describe("the sums", () => {
  test("of a fixed piece of time are asked for with its end", async () => {
    const asked = serveSums();
    setParams({ range: "1790000000000-1790000060000" }, true);
    await summary.reload();
    const query = asked[0]?.searchParams;
    expect(query?.get("since")).toBe("1790000000000000000");
    expect(query?.get("until")).toBe("1790000060000000000");
    expect(summary.data.value?.num_requests).toBe(7);
  });

  test("of a range that ends now are asked for without one", async () => {
    const asked = serveSums();
    setParams({ range: "15m" }, true);
    await summary.reload();
    expect(asked[0]?.searchParams.has("since")).toBe(true);
    expect(asked[0]?.searchParams.has("until")).toBe(false);
  });
});

import { cleanup, fireEvent, render, screen } from "@testing-library/preact";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { AppliedPolicy, PolicyState } from "../src/api/types";
import { policy } from "../src/state/log";
import { refusal } from "../src/state/switch";
import { SwitchPanel } from "../src/views/Switch";
import recorded from "./fixtures/policy_recorded.json";

const OFF = { enabled: false, mode: "tracked" as const, max_restore_blocks_per_step: 64, retention: "lru" as const };
const ON = { ...OFF, enabled: true };
const ASKED_NS = 1_796_000_000_000_000_000;

function answer(changes: Partial<AppliedPolicy>): AppliedPolicy {
  return {
    engine_id: 4,
    dp_index: 0,
    applied_version: 7,
    applied_step: 18_204,
    applied_wall_ns: ASKED_NS + 31_000_000,
    is_pending: false,
    is_idle: false,
    reason: "toggle",
    applied: ON,
    restore_support: "yes",
    ...changes,
  };
}

function state(...engines: AppliedPolicy[]): PolicyState {
  return {
    version: 7,
    policy: ON,
    created_wall_ns: ASKED_NS,
    author: "127.0.0.1",
    engines,
    can_change: true,
    detail: null,
  };
}

const text = () => (document.body.textContent ?? "").replace(/[\u202f\u00a0]/g, " ");
const toggle = () => screen.getByRole<HTMLButtonElement>("switch", { name: "enabled" });

function show(value: PolicyState): void {
  policy.data.value = value;
  render(<SwitchPanel />);
}

afterEach(() => {
  refusal.value = null;
  cleanup();
  vi.unstubAllGlobals();
});

describe("the switch", () => {
  test("an engine that cannot re-store obeys nothing, whatever it answered, and does not count as another word", () => {
    show(state(answer({ applied: OFF, restore_support: "prefix caching is disabled" }), answer({ engine_id: 5 })));
    expect(text()).toContain("engine 0 obeys nothing: it cannot re-store: prefix caching is disabled");
    expect(text()).not.toContain("The engines differ.");
    expect(toggle().getAttribute("aria-checked")).toBe("true");
  });

  test("says what the engine obeys, since which step, and how long that took", () => {
    show(state(answer({})));
    expect(toggle().getAttribute("aria-checked")).toBe("true");
    expect(text()).toContain("engine 0 obeys tracked, 64 a step (v7) since step 18 204, 31 ms after it was asked");
  });

  test("shows what the engine obeys, not what was asked for, until it has answered", () => {
    show(state(answer({ applied: OFF, applied_version: 6, is_pending: true })));
    expect(toggle().getAttribute("aria-checked")).toBe("false");
    expect(toggle().getAttribute("aria-busy")).toBe("true");
    expect(text()).toContain("v7 (tracked, 64 a step) not answered yet");
  });

  test("a click sends the change and moves only with the answer", async () => {
    const answered = { ...state(answer({ applied: OFF, applied_version: 8 })), version: 8, policy: OFF };
    let reply: (response: Response) => void = () => undefined;
    const sent = vi.fn((_path: string, init?: RequestInit) =>
      init?.method === "PUT"
        ? new Promise<Response>((resolve) => {
            reply = resolve;
          })
        : Promise.resolve(Response.json(answered)),
    );
    vi.stubGlobal("fetch", sent);
    show(state(answer({})));
    fireEvent.click(toggle());
    await vi.waitFor(() => expect(sent).toHaveBeenCalled());
    expect(sent.mock.calls[0]?.[1]?.body).toBe('{"enabled":false}');
    expect(toggle().getAttribute("aria-checked")).toBe("true");
    reply(Response.json(answered));
    await vi.waitFor(() => expect(toggle().getAttribute("aria-checked")).toBe("false"));
  });

  test("a refusal is shown in the server's words and changes nothing", async () => {
    const refuse = (_path: string, init?: RequestInit) =>
      Promise.resolve(
        init?.method === "PUT"
          ? Response.json({ detail: "only this machine may change the policy" }, { status: 403 })
          : Response.json(state(answer({}))),
      );
    vi.stubGlobal("fetch", vi.fn(refuse));
    show(state(answer({})));
    fireEvent.click(toggle());
    expect((await screen.findByRole("alert")).textContent).toContain("only this machine may change the policy");
    expect(toggle().getAttribute("aria-checked")).toBe("true");
  });

  test("a fault that turned re-store off is an alert", () => {
    show(state(answer({ applied: OFF, reason: "fault" })));
    expect(screen.getByRole("alert").textContent).toContain("turned off by itself");
  });

  test("engines that differ are said to differ, each with its own word", () => {
    show(state(answer({}), answer({ engine_id: 5, dp_index: 1, applied: OFF, applied_version: 6, is_pending: true })));
    expect(text()).toContain("The engines differ.");
    expect(text()).toContain("engine 1 obeys off");
  });

  test("a recorded log has nothing to switch", () => {
    show(recorded as unknown as PolicyState);
    expect(toggle().disabled).toBe(true);
    expect(text()).toContain("no engine listens");
  });
});

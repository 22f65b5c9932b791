// The answer first: one sentence of what is going on in the range, each number a link to the view that proves it, and a
// line under it of what re-store is told, how many requests came and how long they waited.
import type { Glance, Summary } from "../api/types";
import { policyLabel } from "../lib/events";
import { count, duration, percent, plural, share } from "../lib/format";
import { glance } from "../state/evidence";
import { href, hrefHere, range } from "../state/location";
import { isLive, policy, summary } from "../state/log";
import { rangeWords } from "./bits";

export function Sentence() {
  const sums = summary.data.value;
  // What went wrong stands above; nothing is being read then.
  if (!sums) return summary.error.value === null ? <p class="sentence muted">Reading the log…</p> : null;
  return (
    <div data-testid="sentence">
      <p class="sentence">
        {sums.tokens.prompt_tokens === 0 ? <>No prompt was looked up {rangeWords()}.</> : <Sources sums={sums} />}{" "}
        {sums.tokens.prompt_tokens > 0 && glance.data.value && <Losses data={glance.data.value} />}
      </p>
      <p class="under">
        <Restore sums={sums} /> <Rest sums={sums} />
      </p>
    </div>
  );
}

function Sources({ sums: { tokens } }: { sums: Summary }) {
  const { prompt_tokens: all, gpu_hit_tokens: gpu, cpu_hit_tokens: cpu } = tokens;
  return (
    <>
      <a href={hrefHere({ unit: null })}>
        <b>{share(gpu + cpu, all)}</b>
      </a>{" "}
      of <a href={hrefHere({ unit: "tokens" })}>{count(all)} prompt tokens</a> {rangeWords()} came from cache:{" "}
      {share(gpu, all)} from the GPU, {share(cpu, all)} from the CPU tier.
    </>
  );
}

/** What evictions cost, how much of it re-store could have saved, and what a larger tier would give. */
function Losses({ data }: { data: Glance }) {
  const { lost_to_eviction: lost, restore_would_have_saved: saved, double_tier: double } = data;
  return (
    <>
      {lost !== null && (
        <>
          {lost === 0 ? (
            <>
              <a href={href("misses")}>
                <b>Nothing</b>
              </a>{" "}
              was lost to CPU evictions.
            </>
          ) : (
            <>
              <a href={href("misses", null, { cause: "evicted" })}>
                <b>{percent(lost)}</b>
              </a>{" "}
              were lost to CPU evictions
              {saved !== null && (
                <>
                  ; re-store could have saved{" "}
                  <a href={href("misses", null, { cause: "evicted" })}>
                    <b>{saved === 0 ? "none of it" : percent(saved)}</b>
                  </a>
                </>
              )}
              .
            </>
          )}{" "}
        </>
      )}
      {double !== null && (
        <>
          A tier twice as large would give{" "}
          <a href={href("whatif")}>
            <b>{percent(double)}</b>
          </a>
          .
        </>
      )}
    </>
  );
}

/** What re-store does and what it brought. */
function Restore({ sums: { tokens, restored_blocks: restored } }: { sums: Summary }) {
  const state = policy.data.value;
  if (!state) return null;
  const gained = tokens.restored_hit_tokens;
  const words = policyLabel(state.policy);
  return (
    <>
      <span class="nowrap">Re-store</span> {state.can_change ? "is" : "was last set to"}{" "}
      <a href={href("policy")}>{words === "off" ? "off" : `on (${words})`}</a>
      {gained > 0 ? (
        <>
          ; <a href={href("benefit")}>{share(gained, tokens.prompt_tokens)}</a> of the tokens were hit thanks to it
        </>
      ) : (
        restored > 0 && (
          <>
            ; <a href={hrefHere({ kind: "blocks_restored" })}>{plural(restored, "block")}</a> were re-stored and not hit
            yet
          </>
        )
      )}
      .
    </>
  );
}

/** How many requests came, how many of all run now, and how long they waited for their first token. */
function Rest({ sums }: { sums: Summary }) {
  const { num_requests: requests, num_running: running, ttft_p50_ns: p50, ttft_p90_ns: p90 } = sums;
  return (
    <>
      <a href={href("requests")}>{plural(requests, "request")}</a>
      {isLive.value && range.value.type !== "fixed" && (
        <>
          , <a href={href("requests", null, { state: "running" })}>{count(running)} running</a>
        </>
      )}
      {p50 !== null && (
        <>
          , TTFT {duration(p50)} median, {duration(p90)} at p90
        </>
      )}
      .
    </>
  );
}

// The answer first: one sentence of what is going on in the range, each number a link to what shows it.
import type { Summary, TokenSplit } from "../api/types";
import { policyLabel } from "../lib/events";
import { count, duration, plural, share } from "../lib/format";
import { href, hrefHere, range } from "../state/location";
import { isLive, policy, summary } from "../state/log";

export function Sentence() {
  const sums = summary.data.value;
  if (!sums) return <p class="sentence muted">Reading the log…</p>;
  return (
    <p class="sentence" data-testid="sentence">
      {sums.tokens.prompt_tokens === 0 ? <Silence /> : <Sources tokens={sums.tokens} />} <Restore sums={sums} />{" "}
      <Rest sums={sums} />
    </p>
  );
}

function Silence() {
  return <>No prompt was looked up {rangeWords()}.</>;
}

function Sources({ tokens }: { tokens: TokenSplit }) {
  const { prompt_tokens: all, gpu_hit_tokens: gpu, cpu_hit_tokens: cpu, computed_tokens: computed } = tokens;
  return (
    <>
      <a href={hrefHere({ unit: null })}>
        <b>{share(gpu + cpu, all)}</b>
      </a>{" "}
      of <a href={hrefHere({ unit: "tokens" })}>{count(all)} prompt tokens</a> {rangeWords()} came from cache:{" "}
      {share(gpu, all)} from the GPU, {share(cpu, all)} from the CPU tier. {share(computed, all)} were computed.
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
          ; <a href={hrefHere({ kind: "blocks_restored" })}>{share(gained, tokens.prompt_tokens)}</a> of the tokens were
          hit thanks to it
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

function rangeWords(): string {
  const now = range.value;
  if (now.type === "all") return "in the whole log";
  if (now.type === "fixed") return "in this piece of time";
  const words = `${duration(now.ms * 1e6)}`;
  return isLive.value ? `in the last ${words}` : `in the last ${words} of the log`;
}

// The CPU tier as it stands, and the sums of what went in and out of it.
import { bytes, count, duration, plural, share } from "../lib/format";
import { href, hrefHere } from "../state/location";
import { isLive, summary } from "../state/log";
import { Figure, Mark, Meter, Panel } from "./bits";

export function TierPanel() {
  const sums = summary.data.value;
  const tier = sums?.cpu_tier;
  return (
    <Panel title="CPU tier" class="tier">
      {tier ? (
        <>
          <p class="fill">
            <Meter value={tier.cached_blocks} max={tier.num_blocks} label="CPU tier" />
            <b>{share(tier.cached_blocks, tier.num_blocks)}</b>
          </p>
          <dl class="figures">
            <Figure label="cached" value={`${count(tier.cached_blocks)} of ${plural(tier.num_blocks, "block")}`} />
            <Figure
              label="bytes"
              value={`${bytes(tier.cached_blocks * tier.block_bytes)} of ${bytes(tier.num_blocks * tier.block_bytes)}`}
            />
            <Figure label="in flight" value={count(tier.in_flight_blocks)} />
            <Figure label="wait to be re-stored" value={count(tier.restorable_blocks)} />
          </dl>
        </>
      ) : (
        <p class="muted">
          {isLive.value ? "No step was taken yet." : "No engine is running: the tier is gone with it."}
        </p>
      )}
      {sums && (
        <dl class="figures">
          <Figure label="stored" value={`${count(sums.stored_blocks)}, ${bytes(sums.stored_bytes)}`} />
          <Figure label="re-stored" value={`${count(sums.restored_blocks)}, ${bytes(sums.restored_bytes)}`} />
          <Figure label="loaded" value={`${count(sums.loaded_blocks)}, ${bytes(sums.loaded_bytes)}`} />
          <Figure label="evicted" value={count(sums.evicted_blocks)} />
          <Figure
            label="dropped at finish"
            value={<a href={hrefHere({ kind: "blocks_dropped" })}>{count(sums.dropped_blocks)}</a>}
          />
          {sums.last_minute.prompt_tokens > 0 && (
            <Figure
              label="hit rate, last minute"
              value={share(
                sums.last_minute.gpu_hit_tokens + sums.last_minute.cpu_hit_tokens,
                sums.last_minute.prompt_tokens,
              )}
            />
          )}
          {sums.ttft_p50_ns !== null && <Figure label="TTFT, median" value={duration(sums.ttft_p50_ns)} />}
        </dl>
      )}
      {sums && sums.num_faults > 0 && (
        <p class="note alarm">
          <Mark tone="alarm">!</Mark>{" "}
          <a href={href("now", null, { kind: "fault" })}>{plural(sums.num_faults, "fault")}</a>: {sums.last_fault}
        </p>
      )}
      {sums && sums.num_events_dropped > 0 && (
        <p class="note alarm">
          <Mark tone="alarm">!</Mark>{" "}
          <a href={href("now", null, { kind: "events_dropped" })}>{plural(sums.num_events_dropped, "event")}</a> are
          missing from the log: the queue was full, the sums are too low
        </p>
      )}
    </Panel>
  );
}

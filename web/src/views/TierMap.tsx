// The CPU tier itself: a map of its blocks, the order in which they would go, how old blocks get, and what was never hit.
import { useMemo } from "preact/hooks";
import type { Tier, TierBlock } from "../api/types";
import { Histogram } from "../draw/Histogram";
import { binWords, edge, trimBins } from "../lib/benefit";
import { bytes, count, duration, exact, NONE, percent, plural, share, shortHash, shortId } from "../lib/format";
import { arrange, type Order, type Paint } from "../lib/tiermap";
import { TIER_BLOCKS, tier, tierParams } from "../state/evidence";
import { href, hrefHere, route, setParams } from "../state/location";
import { engines, mainEngine } from "../state/log";
import { BlockGrid } from "./BlockGrid";
import { Figure, Panel, Problem, RequestLink } from "./bits";
import { TakeAway, useWidth } from "./charts";
import { RetentionPanel } from "./Retention";

export function TierView() {
  const data = tier.data.value;
  return (
    <main class="view" id="main">
      <h1>The CPU tier, block by block</h1>
      <Problem what="The tier could not be read" error={tier.error.value} />
      {data === null ? (
        !tier.error.value &&
        (engines.data.value?.length === 0 ? (
          <p class="sentence">No engine has written to this log yet.</p>
        ) : (
          <p class="muted">Reading the tier…</p>
        ))
      ) : (
        <>
          <Answer data={data} />
          <MapPanel data={data} />
          <RetentionPanel />
          <Ages data={data} />
        </>
      )}
    </main>
  );
}

/** The answer first: how full, how old blocks get, how many went without ever having been hit. */
function Answer({ data }: { data: Tier }) {
  const held = data.num_blocks - (data.states.free ?? 0);
  return (
    <p class="sentence" data-testid="answer">
      <b>{share(held, data.num_blocks)}</b> of {plural(data.num_blocks, "block")} (
      {bytes(data.num_blocks * data.block_bytes)}) hold something.{" "}
      {data.evicted_blocks === 0 ? (
        <>Nothing was evicted yet: there is room.</>
      ) : (
        <>
          {plural(data.evicted_blocks, "block")} were evicted so far, <b>{percent(data.churn)}</b> of them without a hit
          since they were stored: copying those was for nothing.
        </>
      )}
    </p>
  );
}

const PAINTS: readonly { value: Paint; label: string }[] = [
  { value: "state", label: "state" },
  { value: "age", label: "age" },
  { value: "conversation", label: "conversation" },
];
const ORDERS: readonly { value: Order; label: string }[] = [
  { value: "id", label: "by block id" },
  { value: "eviction", label: "as they would go" },
];

function MapPanel({ data }: { data: Tier }) {
  const { params } = route.value;
  const paint = PAINTS.find(({ value }) => value === params.by)?.value ?? "state";
  const order = ORDERS.find(({ value }) => value === params.order)?.value ?? "id";
  const blocks = useMemo(() => arrange(data.blocks, order), [data, order]);
  const pinnedAt = blocks.findIndex(({ id }) => String(id) === params.block);
  const pinned = pinnedAt < 0 ? null : pinnedAt;
  const block = pinned === null ? null : (blocks[pinned] ?? null);
  return (
    <Panel
      title={`Engine ${engineName(data.engine_id)} after row ${count(data.seq)}, ${exact(data.wall_ns)}`}
      class="tier-map"
      tools={
        <span class="tools">
          <Choice name="colour" options={PAINTS} value={paint} param="by" />
          <Choice name="order" options={ORDERS} value={order} param="order" />
          <Engines />
          <TakeAway path="/tier" params={tierParams.value} what="The tier's blocks" />
        </span>
      }
    >
      <BlockGrid
        blocks={blocks}
        paint={paint}
        pinned={pinned}
        onPin={(at) => setParams({ block: at === null ? null : String(blocks[at]?.id) }, true)}
      />
      {block && <Pinned block={block} data={data} />}
      <Pages data={data} />
      <Notes data={data} order={order} />
    </Panel>
  );
}

const engineName = (id: number) => {
  const engine = engines.data.value?.find((each) => each.id === id);
  return engine ? `${engine.dp_index}, start ${id}` : String(id);
};

interface ChoiceProps<T extends string> {
  name: string;
  options: readonly { value: T; label: string }[];
  value: T;
  param: string;
}

function Choice<T extends string>({ name, options, value, param }: ChoiceProps<T>) {
  return (
    <label class="labelled">
      <span class="muted">{name}</span>
      <select value={value} onChange={(event) => setParams({ [param]: event.currentTarget.value })}>
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Which engine's tier, where the log knows several. */
function Engines() {
  const all = engines.data.value ?? [];
  if (all.length < 2) return null;
  const shown = String(tierParams.value.engine ?? "");
  return (
    <label class="labelled">
      <span class="muted">engine</span>
      <select
        value={shown}
        onChange={(event) => {
          const id = event.currentTarget.value;
          setParams({ engine: id === String(mainEngine.peek()?.id) ? null : id, block: null, from: null });
        }}
      >
        {all.map((engine) => (
          <option key={engine.id} value={String(engine.id)}>
            {`${engine.dp_index}, start ${engine.id}${engine.is_live ? ", live" : ""}`}
          </option>
        ))}
      </select>
    </label>
  );
}

function Pinned({ block, data }: { block: TierBlock; data: Tier }) {
  return (
    <dl class="figures row pinned" aria-label={`Block ${block.id}`}>
      <Figure label="block" value={count(block.id)} />
      <Figure label="state" value={stateWords(block)} />
      {block.hash !== null && (
        <>
          <Figure
            label="holds"
            value={
              <a class="hash" href={href("now", null, { find: block.hash.slice(0, 16) })} title={block.hash}>
                {shortHash(block.hash)}
              </a>
            }
          />
          <Figure
            label="index in its chain"
            value={`${count(block.index)}${block.kv_group ? `, g${block.kv_group}` : ""}`}
          />
          <Figure label="stored by" value={<RequestLink id={block.request_id} />} />
          <Figure
            label="conversation"
            value={
              block.conversation_id === null ? (
                NONE
              ) : (
                <a class="hash" href={href("conversation", block.conversation_id)}>
                  {shortId(block.conversation_id)}
                </a>
              )
            }
          />
          <Figure label="age" value={duration(block.age_ns)} />
          <Figure label="hits since" value={count(block.num_hits)} />
          <Figure
            label="goes"
            value={block.eviction_rank === null ? "not now" : goesWords(block.eviction_rank, data.is_order_approximate)}
          />
        </>
      )}
      <div class="figure">
        <dt class="unseen">close</dt>
        <dd>
          <button type="button" onClick={() => setParams({ block: null }, true)}>
            unpin
          </button>
        </dd>
      </div>
    </dl>
  );
}

function goesWords(rank: number, isApproximate: boolean): string {
  const about = isApproximate ? "about " : "";
  return rank === 0 ? `${about}next` : `${about}after ${plural(rank, "other")}`;
}

export function stateWords(block: TierBlock): string {
  const words: Readonly<Record<TierBlock["state"], string>> = {
    free: "free",
    cached: block.is_restored ? "cached, re-stored" : "cached",
    pinned: "pinned: a load reads it, or will",
    in_flight: "in flight: a copy writes it",
    unknown: "not known",
  };
  return words[block.state];
}

/** Pages of a tier with more blocks than one map shows. */
function Pages({ data }: { data: Tier }) {
  if (data.num_blocks <= TIER_BLOCKS) return null;
  const first = data.blocks[0]?.id ?? 0;
  const last = data.blocks.at(-1)?.id ?? 0;
  return (
    <nav class="pages" aria-label="Pages of the map">
      <span>
        blocks {count(first)} – {count(last)} of {count(data.num_blocks)}
      </span>
      {first > 0 && <a href={hrefHere({ from: first > TIER_BLOCKS ? String(first - TIER_BLOCKS) : null })}>before</a>}
      {data.blocks.length === TIER_BLOCKS && last + 1 < data.num_blocks && (
        <a href={hrefHere({ from: String(last + 1) })}>after</a>
      )}
    </nav>
  );
}

function Notes({ data, order }: { data: Tier; order: Order }) {
  return (
    <p class="muted">
      {order === "eviction" && "The first goes first; those that cannot go now stand at the end. "}
      {data.is_order_approximate &&
        "The order is worked out from completed copies and loads, so it is approximate while some are under way. "}
      {!data.is_complete && "The log says too little about some blocks: they are marked with a question mark."}
    </p>
  );
}

function Ages({ data }: { data: Tier }) {
  const [box, width] = useWidth();
  const bins = trimBins(data.eviction_age);
  if (bins.length === 0) return null;
  const last = bins.at(-1)?.to_ns;
  return (
    <Panel title="How old blocks get">
      <div ref={box}>
        <Histogram
          bars={bins.map((bin) => ({
            from: edge(bin.from_ns),
            value: bin.num_blocks,
            words: `${plural(bin.num_blocks, "block")} evicted ${binWords(bin)}`,
          }))}
          end={last === null || last === undefined ? "∞" : edge(last)}
          width={width}
          height={170}
          label="Evicted blocks by their age"
          tone="cpu"
          valueLabel={(value) => count(value)}
        />
        <p class="muted axis-name">evicted blocks by the time since they were stored</p>
      </div>
    </Panel>
  );
}

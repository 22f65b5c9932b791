// Every start of an engine that the log knows, newest first.
import type { Engine } from "../api/types";
import { bytes, count, duration, exact, plural } from "../lib/format";
import { nowMs } from "../state/clock";
import { engines } from "../state/log";
import { Ago, Figure, Mark, Panel, Problem } from "./bits";

export function EnginesView() {
  const rows = engines.data.value;
  return (
    <main class="view" id="main">
      <h1>Engines</h1>
      <Problem what="The engines could not be read" error={engines.error.value} />
      {rows?.length === 0 && <p>No engine has written to this log yet.</p>}
      <div class="cards">
        {[...(rows ?? [])]
          .sort((a, b) => b.id - a.id)
          .map((engine) => (
            <Card key={engine.id} engine={engine} />
          ))}
      </div>
    </main>
  );
}

function Card({ engine }: { engine: Engine }) {
  const groups = engine.kv_groups as { block_size?: number; kind?: string; is_prefix_cacheable?: boolean }[];
  return (
    <Panel
      title={`Engine ${engine.dp_index}, start ${engine.id}`}
      tools={
        <span class={`status status-${engine.is_live ? "live" : "idle"}`}>
          {<i aria-hidden="true" />}
          {lifeWords(engine)}
        </span>
      }
    >
      <dl class="figures">
        <Figure label="model" value={engine.model} />
        <Figure label="started" value={exact(engine.started_wall_ns)} />
        <Figure label="last sign of life" value={<Ago ns={engine.stopped_wall_ns ?? engine.heartbeat_wall_ns} />} />
        <Figure label="GPU blocks" value={count(engine.num_gpu_blocks)} />
        <Figure
          label="CPU tier"
          value={`${plural(engine.num_cpu_blocks, "block")}, ${bytes(engine.num_cpu_blocks * engine.block_bytes)}`}
        />
        <Figure label="hash block" value={plural(engine.hash_block_size, "token")} />
        <Figure
          label="KV groups"
          value={groups
            .map(
              (group, i) =>
                `g${i} ${group.kind ?? ""} ${group.block_size ?? ""}${group.is_prefix_cacheable === false ? ", not cached" : ""}`,
            )
            .join("; ")}
        />
        <Figure label="process" value={`${engine.hostname}, pid ${engine.pid}`} />
        <Figure label="id" value={<span class="hash">{engine.engine_uid}</span>} />
        <Figure
          label="versions"
          value={`vLLM ${engine.vllm_version}, vllm-restore ${engine.restore_version}, SQLite ${engine.sqlite_version}`}
        />
      </dl>
      {engine.restore_support !== "yes" && (
        <p class="note alarm">
          <Mark tone="alarm">!</Mark> This engine cannot re-store: {engine.restore_support}
        </p>
      )}
    </Panel>
  );
}

function lifeWords(engine: Engine): string {
  if (engine.is_live) return `up ${duration(nowMs.value * 1e6 - engine.started_wall_ns)}`;
  if (engine.stopped_wall_ns !== null)
    return `ran ${duration(engine.stopped_wall_ns - engine.started_wall_ns)}, stopped`;
  return `ran ${duration(engine.heartbeat_wall_ns - engine.started_wall_ns)}, went silent`;
}

// The legend of the shadows on the timeline: each with its hit rate over the range, and how far to trust it.

import { readInk } from "../draw/palette";
import { DASHES, lineColor } from "../draw/shadows";
import { percent } from "../lib/format";
import { lineStyle, OBEYED, shadowLabel } from "../lib/shadows";
import { points } from "../lib/whatif";
import { unit } from "../state/cursor";
import { shadows } from "../state/evidence";
import { href } from "../state/location";
import { hidden, hrefToggled, offered } from "../state/shadows";
import { isDark } from "../state/theme";

export function ShadowKeys() {
  const data = shadows.data.value;
  if (unit.value === "tokens" || shadows.error.value !== null) return null;
  if (data?.unsupported) {
    return <p class="readout shadow-keys muted">No shadows: {data.unsupported}</p>;
  }
  return (
    <div class="readout shadow-keys" data-testid="shadow-keys">
      <span class="when">
        <a href={href("whatif")}>shadows</a>
      </span>
      <span class="legend">
        {offered.value.map((shadow) => (
          <a
            key={shadow.name}
            class={`key-of ${hidden.value.has(shadow.name) ? "is-hidden" : ""}`}
            href={hrefToggled(shadow.name)}
            title={hidden.value.has(shadow.name) ? "show its line" : "hide its line"}
          >
            <LineSwatch policy={shadow.name} /> <span class="key-name">{shadowLabel(shadow.name)}</span>{" "}
            <b>{percent(shadow.hit_rate)}</b>
            {shadow.name === OBEYED && <Distance percentagePoints={data?.error?.percentage_points ?? null} />}
          </a>
        ))}
      </span>
      {!data?.is_caught_up && <span class="muted">reading the log…</span>}
    </div>
  );
}

/** How far the shadow of what was obeyed is from the engine: so far the others may be off as well. */
function Distance({ percentagePoints }: { percentagePoints: number | null }) {
  if (percentagePoints === null) return null;
  return (
    <span class="muted" title="the shadow of the policy that was obeyed, less what the engine found">
      {Math.abs(percentagePoints) < 0.05 ? "as the engine" : `${points(percentagePoints / 100, 0)} off`}
    </span>
  );
}

/** A piece of the line as it is drawn. */
export function LineSwatch({ policy }: { policy: string }) {
  const style = lineStyle(policy);
  return (
    <svg width="22" height="10" viewBox="0 0 22 10" aria-hidden="true">
      <line
        x1="0"
        x2="22"
        y1="5"
        y2="5"
        stroke={lineColor(style, readInk(isDark.value))}
        stroke-width="2"
        stroke-dasharray={DASHES[style].join(" ")}
      />
    </svg>
  );
}

// What re-store gained and spent in the range: one line in the panel of the switch.
import { outcome, seconds, times } from "../lib/benefit";
import { plural } from "../lib/format";
import { benefit } from "../state/evidence";
import { href } from "../state/location";

export function Gains() {
  const total = benefit.data.value?.total;
  if (!total) return null;
  const { restore, saved_s: saved, spent_s: spent, roi } = total;
  const state = outcome(total);
  return (
    <p class="gains" data-testid="gains">
      <a href={href("benefit")}>
        {state === "idle" ? (
          "nothing re-stored in this range"
        ) : state === "unhit" ? (
          <>
            {plural(restore.restored_blocks, "block")} re-stored, none hit yet
            {spent !== null && <>, spent {seconds(spent)}</>}
          </>
        ) : (
          <>
            gained <b>{saved === null ? plural(restore.hit_tokens, "token") : seconds(saved)}</b>
            {spent !== null && (
              <>
                {" "}
                · spent <b>{seconds(spent)}</b>
              </>
            )}
            {roi !== null && (
              <>
                {" "}
                · <b>{times(roi)}</b>
              </>
            )}
          </>
        )}
      </a>
    </p>
  );
}

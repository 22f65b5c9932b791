// The form of the what-if: which policies, which sizes. What it asks for stands in the address.
import { useState } from "preact/hooks";
import { DEFAULT_POLICIES, POLICIES, readSizes, usualSizes } from "../lib/whatif";
import { whatIf } from "../state/evidence";
import { route, setParams } from "../state/location";
import { mainEngine } from "../state/log";
import { numWaiting } from "../state/resource";

export function AskForm() {
  const engine = mainEngine.value;
  const { policies, gib } = route.value.params;
  const [problem, setProblem] = useState<string | null>(null);
  const usual = engine ? usualSizes(engine.num_cpu_blocks * engine.block_bytes) : "1,2,4,8";
  const chosen = new Set((policies ?? DEFAULT_POLICIES).split(","));
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const sizes = readSizes(String(data.get("gib") ?? ""));
    const wanted = data.getAll("policy").join(",");
    if (!sizes) setProblem("Sizes are numbers of GiB greater than 0, with commas between: 0.5, 1, 2");
    else if (!wanted) setProblem("Choose one policy at least.");
    else {
      setProblem(null);
      setParams({ policies: wanted, gib: sizes });
    }
  };
  return (
    <form class="form" onSubmit={submit} aria-describedby={problem ? "what-if-problem" : undefined}>
      <fieldset>
        <legend>policies</legend>
        {POLICIES.map((name) => (
          <label key={name}>
            <input type="checkbox" name="policy" value={name} defaultChecked={chosen.has(name)} />
            {name}
          </label>
        ))}
      </fieldset>
      <label>
        <span class="muted">sizes in GiB</span>
        <input
          name="gib"
          size={44}
          key={gib ?? usual}
          defaultValue={gib ?? usual}
          inputMode="decimal"
          autoComplete="off"
          aria-invalid={problem !== null}
        />
      </label>
      <button type="submit" class="main" disabled={numWaiting.value > 0 && whatIf.data.value === null}>
        compute
      </button>
      {problem && (
        <p class="note alarm" role="alert" id="what-if-problem">
          {problem}
        </p>
      )}
    </form>
  );
}

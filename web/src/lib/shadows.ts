// How the line of a policy looks: the same on the timeline and on the curve. Pure: imports nothing.

export type LineStyle = "off" | "tracked" | "rescan" | "adaptive" | "adaptive-off" | "unlimited" | "truth" | "heads";

const STYLES: readonly LineStyle[] = ["off", "tracked", "rescan", "adaptive", "adaptive-off", "unlimited", "truth"];

/** The shadow of what the engine obeys, by which all others are judged. */
export const OBEYED = "active";

/** What a shadow is called on screen. */
export function shadowLabel(name: string): string {
  return name === OBEYED ? "as obeyed" : name;
}

/** Of a policy, or of a shadow by its name. */
export function lineStyle(policy: string): LineStyle {
  if (policy === OBEYED) return "truth";
  return STYLES.find((style) => style === policy) ?? "off";
}

// How the line of a policy looks: the same on the timeline and on the curve. Pure: imports nothing.

export type LineStyle = "off" | "tracked" | "rescan" | "unlimited" | "truth";

const STYLES: readonly LineStyle[] = ["off", "tracked", "rescan", "unlimited", "truth"];

export function lineStyle(policy: string): LineStyle {
  return STYLES.find((style) => style === policy) ?? "off";
}

// Scales of small charts: where values stand, and where the labels go. Pure: imports nothing.

/** Round ticks from 0 to at least `top`, about `wanted` of them. */
export function ticks(top: number, wanted = 4): number[] {
  if (!(top > 0)) return [0];
  const rough = top / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999) ?? power;
  const list: number[] = [];
  for (let i = 0; i * step < top + step * 0.999; i += 1) list.push(i * step);
  return list;
}

/** A logarithmic scale from the least to the greatest of `values`, which are greater than 0, to 0 … `length`. */
export function logScale(values: readonly number[], length: number): (value: number) => number {
  const low = Math.log(Math.min(...values));
  const high = Math.log(Math.max(...values));
  if (!(high > low)) return () => length / 2;
  return (value) => ((Math.log(value) - low) / (high - low)) * length;
}

/** Moves labels apart so that none is nearer than `gap` to the next; keeps their order. */
export function spread(places: readonly number[], gap: number, low: number, high: number): number[] {
  const order = places.map((place, i) => ({ place, i })).sort((a, b) => a.place - b.place);
  let next = low;
  for (const item of order) {
    item.place = Math.max(item.place, next);
    next = item.place + gap;
  }
  let last = high;
  for (const item of order.reverse()) {
    item.place = Math.min(item.place, last);
    last = item.place - gap;
  }
  const out = [...places];
  for (const { place, i } of order) out[i] = place;
  return out;
}

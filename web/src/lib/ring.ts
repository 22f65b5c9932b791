// The newest events, oldest first, each sequence number once, at most `capacity`. Pure: imports nothing.

/** `list` with `added` merged in by `seq`; the oldest fall off. Returns `list` itself where nothing is new. */
export function mergeBySeq<T extends { seq: number }>(
  list: readonly T[],
  added: readonly T[],
  capacity: number,
): readonly T[] {
  const last = list.at(-1)?.seq ?? -1;
  const inOrder = added.every((item, i) => item.seq > (added[i - 1]?.seq ?? last));
  if (inOrder) {
    if (added.length === 0) return list;
    const all = [...list, ...added];
    return all.length > capacity ? all.slice(all.length - capacity) : all;
  }
  const bySeq = new Map(list.map((item) => [item.seq, item]));
  for (const item of added) bySeq.set(item.seq, item);
  return [...bySeq.values()].sort((a, b) => a.seq - b.seq).slice(-capacity);
}

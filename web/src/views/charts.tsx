// What every chart on a time axis shares: the width of its box, one strip of uPlot mounted once, the links to take data away.
import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { API, type Params, withParams } from "../api/client";
import { download } from "../api/download";
import { type Ink, readInk } from "../draw/palette";
import { type Bucket, type Series, Track, type TrackOptions } from "../draw/track";
import { fixedRange } from "../lib/range";
import { hasKey } from "../state/access";
import { setParams } from "../state/location";
import { isDark } from "../state/theme";

/** The width of an element in whole pixels, 0 before it is known. */
export function useWidth(): [RefObject<HTMLDivElement | null>, number] {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!box.current) return;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}

export type StripOptions<P extends Bucket> = Pick<
  TrackOptions<P>,
  "height" | "hasTimeAxis" | "yLabel" | "padTop" | "yMax" | "paint"
>;

/** Half of the label of the last moment stands beyond the plot. */
export const LABEL_MARGIN = 22;

interface StripProps<P extends Bucket> {
  data: Series<P> | null;
  options: StripOptions<P>;
  width: number;
  gutter: number;
  margin?: number;
  label: string;
  onCursor: (index: number | null) => void;
  /** Whatever else the painting depends on: painted again when it changes. */
  look?: string;
  /** Given the track, so that a cursor moved by keys can be shown. */
  mounted?: (track: Track<P>) => () => void;
}

/** Mounts one track once and gives it whatever is new. A piece that is dragged over becomes the range. */
export function Strip<P extends Bucket>({
  data,
  options,
  width,
  gutter,
  margin = LABEL_MARGIN,
  label,
  onCursor,
  look,
  mounted,
}: StripProps<P>) {
  const root = useRef<HTMLDivElement>(null);
  const track = useRef<Track<P> | null>(null);
  const latest = useRef(options);
  const unmount = useRef<(() => void) | undefined>(undefined);
  latest.current = options;
  const ink: Ink = readInk(isDark.value);
  useEffect(() => {
    if (!root.current || !data) return;
    if (track.current) {
      track.current.update({ timeline: data, ink }, width);
      return;
    }
    const made = new Track<P>(
      root.current,
      width,
      { timeline: data, ink },
      {
        ...options,
        gutter,
        margin,
        yMax: (points) => latest.current.yMax(points),
        paint: (painter, given) => latest.current.paint(painter, given),
        onCursor,
        onSelect: (sinceMs, untilMs) => setParams({ range: fixedRange(sinceMs, untilMs) }),
      },
    );
    track.current = made;
    unmount.current = mounted?.(made);
  }, [data, width, isDark.value, look]);
  useEffect(
    () => () => {
      unmount.current?.();
      track.current?.destroy();
      track.current = null;
    },
    [],
  );
  return <div class="canvas" ref={root} role="img" aria-label={label} />;
}

/** The arrow keys' way through buckets: the next index, null for none, undefined where the key means nothing here. */
export function stepByKey(key: string, now: number, points: number): number | null | undefined {
  if (key === "Escape") return null;
  const next = {
    ArrowLeft: now - 1,
    ArrowRight: now + 1,
    PageUp: now - 10,
    PageDown: now + 10,
    Home: 0,
    End: points - 1,
  }[key];
  return next === undefined ? undefined : Math.max(0, Math.min(points - 1, next));
}

/** Links to the same data as a file. */
export function TakeAway({ path, params, what }: { path: string; params: Params; what: string }) {
  const csv = withParams(`${API}${path}`, { ...params, format: "csv" });
  const json = withParams(`${API}${path}`, params);
  return (
    <span class="take">
      <a href={csv} download="" aria-label={`${what} as CSV`} onClick={(event) => withKey(event, csv)}>
        CSV
      </a>
      <a href={json} target="_blank" rel="noreferrer" aria-label={`${what} as JSON`} onClick={(e) => withKey(e, json)}>
        JSON
      </a>
    </span>
  );
}

/** A plain link carries no key: where one is needed, the file is fetched with it. */
function withKey(event: MouseEvent, path: string): void {
  if (!hasKey.value) return;
  event.preventDefault();
  void download(path);
}

import { describe, expect, test } from "vitest";
import { follow, SilentStream } from "../src/lib/follow";
import { type Message, sseParser } from "../src/lib/sse";

function parse(...chunks: string[]): Message[] {
  const messages: Message[] = [];
  const feed = sseParser((message) => messages.push(message));
  for (const chunk of chunks) feed(chunk);
  return messages;
}

describe("sse", () => {
  const whole = ': hello\n\nevent: log\nid: 7\ndata: {"a":\ndata: 1}\n\nevent: gap\ndata: {}\n\n';
  const expected = [
    { event: "log", id: "7", data: '{"a":\n1}' },
    // A gap has no id of its own: the stream resumes after the last row that was stored.
    { event: "gap", id: "7", data: "{}" },
  ];

  test("messages are the same however the bytes are cut", () => {
    for (let size = 1; size <= whole.length; size += 1) {
      const chunks: string[] = [];
      for (let at = 0; at < whole.length; at += size) chunks.push(whole.slice(at, at + size));
      expect(parse(...chunks)).toEqual(expected);
    }
  });

  test("all three line ends are understood, a pair cut in two included", () => {
    expect(parse("data: a\r", "\n\r\ndata: b\r\rdata: c\n\n").map(({ data }) => data)).toEqual(["a", "b", "c"]);
  });

  test("comments, unknown fields and messages without data are passed over", () => {
    expect(parse(": still here\n\nretry: 1000\n\nid: 9\n\ndata\n\n")).toEqual([
      { event: "message", id: "9", data: "" },
    ]);
  });

  test("an unfinished message is not delivered", () => {
    expect(parse("data: half\n")).toEqual([]);
  });
});

describe("follow", () => {
  const encoder = new TextEncoder();

  test("characters cut in the middle of their bytes come out whole", async () => {
    const bytes = encoder.encode("data: é→\n\n");
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
        controller.close();
      },
    });
    const seen: string[] = [];
    await follow(body, ({ data }) => seen.push(data));
    expect(seen).toEqual(["é→"]);
  });

  test("a stream without a sign of life is given up, and its body is let go", async () => {
    let isCancelled = false;
    const body = new ReadableStream<Uint8Array>({
      cancel() {
        isCancelled = true;
      },
    });
    await expect(follow(body, () => undefined, 5)).rejects.toBeInstanceOf(SilentStream);
    expect(isCancelled).toBe(true);
  });
});

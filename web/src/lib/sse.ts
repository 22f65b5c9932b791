// A parser of server-sent events over text chunks of any size (WHATWG HTML, section 9.2.6). Pure: imports nothing.
// Own code because EventSource cannot send the Authorization header that a server with a key asks for.

export interface Message {
  /** The `event:` field, `message` where there was none. */
  event: string;
  /** The last `id:` seen so far on this stream: what Last-Event-ID resumes from. */
  id: string;
  data: string;
}

/** Feed it decoded text; it calls `deliver` for each complete message. Comments and unknown fields are passed over. */
export function sseParser(deliver: (message: Message) => void): (text: string) => void {
  let rest = "";
  let event = "";
  let id = "";
  let data: string[] = [];
  let started = false;

  function field(line: string): void {
    if (line === "") {
      if (data.length > 0) deliver({ event: event || "message", id, data: data.join("\n") });
      event = "";
      data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (name === "event") event = value;
    else if (name === "data") data.push(value);
    else if (name === "id" && !value.includes("\0")) id = value;
  }

  return (text) => {
    rest += text;
    if (!started && rest.length > 0) {
      started = true;
      if (rest.startsWith("\ufeff")) rest = rest.slice(1);
    }
    for (;;) {
      const end = rest.search(/[\r\n]/);
      // A lone CR at the end of a chunk may be half of a CRLF: wait for the next chunk.
      if (end < 0 || (rest[end] === "\r" && end === rest.length - 1)) return;
      const line = rest.slice(0, end);
      rest = rest.slice(rest[end] === "\r" && rest[end + 1] === "\n" ? end + 2 : end + 1);
      field(line);
    }
  };
}

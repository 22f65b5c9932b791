// Saves an answer of the API as a file, with the key that a plain link would not send.
import { ApiError, problem } from "./client";
import { authHeaders } from "./key";

/** Fetches `path` and hands it to the browser as a download, under the name that the server gives it. */
export async function download(path: string): Promise<void> {
  const response = await fetch(path, { headers: authHeaders() });
  if (!response.ok) throw new ApiError(response.status, await problem(response));
  const link = document.createElement("a");
  const url = URL.createObjectURL(await response.blob());
  link.href = url;
  link.download = nameOf(response.headers.get("Content-Disposition")) ?? nameOfPath(path);
  link.click();
  // The browser has taken the data by the next turn of its loop.
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export function nameOf(disposition: string | null): string | null {
  return /filename="?([^";]+)"?/.exec(disposition ?? "")?.[1] ?? null;
}

function nameOfPath(path: string): string {
  return `${path.split("?")[0]?.split("/").at(-1) ?? "data"}.json`;
}

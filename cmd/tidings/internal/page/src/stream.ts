// Streams of server-sent events by fetch, which can send the token in a header.
import { signal } from "@preact/signals";
import { parse } from "./exact";

// token is the caller's bearer token. It is kept in the memory of this tab only.
export const token = signal("");

// Problem is an answer of the server that is an error.
export class Problem extends Error {
  constructor(readonly status: number, message: string, readonly reason: string, readonly exists: string[], readonly progress?: { received: number; expected?: number }) {
    super(message);
  }
  // final says that trying again does not help.
  get final(): boolean {
    return [400, 401, 403, 404, 410].includes(this.status) || ["Forbidden", "Unauthorized", "Invalid"].includes(this.reason);
  }
}

function problemOf(status: number, body: string): Problem {
  try {
    const p = JSON.parse(body);
    return new Problem(status, p.error ?? body, p.reason ?? "", p.exists ?? [], p.progress);
  } catch {
    return new Problem(status, `the server answered with status ${status}`, "", []);
  }
}

export async function request(path: string, accept: string, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { Accept: accept };
  if (token.value) headers.Authorization = "Bearer " + token.value;
  const response = await fetch(path, { headers, signal, credentials: "same-origin", cache: "no-store", redirect: "error" });
  if (!response.ok) throw problemOf(response.status, await response.text());
  return response;
}

export async function getJSON<T>(path: string, signal?: AbortSignal): Promise<T> {
  return parse(await (await request(path, "application/json", signal)).text());
}

// patience is how long the server may send nothing before the connection counts as lost. It sends a sign of life every
// 5 s to a window, and every 15 s to a watch.
const patience = (path: string) => (/[?&]watch=true/.test(path) ? 40_000 : 12_000);

// follow calls each for every event of a stream. It ends with an error when the stream
// does.
export async function follow(path: string, signal: AbortSignal, each: (event: string, data: any) => void): Promise<never> {
  const silence = new AbortController();
  const both = AbortSignal.any([signal, silence.signal]);
  let timer = 0;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(new Error("the server has sent nothing for a while")), patience(path));
  };
  try {
    heard();
    clearTimeout(timer); // the first answer may take as long as the server needs
    const response = await request(path, "text/event-stream", both);
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      heard();
      const { done, value } = await reader.read();
      if (done) throw new Error("the server has closed the connection");
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop()!;
      for (const block of blocks) {
        let event = "message";
        let data = "";
        for (const line of block.split("\n")) {
          if (line.startsWith("data: ")) data += line.slice(6);
          else if (line.startsWith("event: ")) event = line.slice(7);
        }
        if (event === "end") throw problemOf(0, data);
        if (data) each(event, parse(data));
      }
    }
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

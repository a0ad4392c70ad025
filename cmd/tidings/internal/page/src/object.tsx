import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { age, visibleText } from "./format";
import { base, command, go, query } from "./query";
import { now } from "./rows";
import { follow, Problem } from "./stream";
import { yaml } from "./yaml";

// The lines of the object with the beat at which each came to differ from before.
interface Shown { lines: { text: string; beat: number }[]; gone: boolean; at: number; problem?: Error }
const shown = signal<Shown>({ lines: [], gone: false, at: 0 });
let beat = 0;

// Bounds of what is shown of an object: a browser is slow to lay out more.
const mostLines = 10_000;
const longest = 4_000;

export function lines(object: any): string[] {
  const { managedFields: _, ...metadata } = object.metadata ?? {}; // as kubectl shows objects
  const all = yaml(mask({ ...object, metadata }));
  const some = all.slice(0, mostLines).map((l) => (l.length > longest ? `${l.slice(0, longest)}… (${l.length - longest} more characters)` : l));
  return all.length > mostLines ? [...some, `# … ${all.length - mostLines} more lines`] : some;
}

// mask hides what a Secret has, so that it can be looked at with others in the room.
function mask(object: any): any {
  if (object.kind !== "Secret") return object;
  const hide = (data: object | undefined) => data && Object.fromEntries(Object.keys(data).map((k) => [k, "••••••"]));
  const { "kubectl.kubernetes.io/last-applied-configuration": _, ...annotations } = object.metadata.annotations ?? {};
  const copy = { ...object, metadata: { ...object.metadata, annotations }, data: hide(object.data), stringData: hide(object.stringData) };
  return JSON.parse(JSON.stringify(copy)); // without what is undefined
}

// differences gives the lines of now that are not in before, by their common lines.
function differences(before: Shown["lines"], now: string[]): Shown["lines"] {
  beat++;
  let from = 0;
  return now.map((text) => {
    const at = before.findIndex((l, i) => i >= from && i < from + 200 && l.text === text);
    if (at < 0) return { text, beat: before.length ? beat : 0 };
    from = at + 1;
    return before[at];
  });
}

async function watch(path: string, signal: AbortSignal): Promise<void> {
  for (let tries = 0; !signal.aborted; tries++) {
    try {
      await follow(path, signal, (_, e) => {
        tries = 0;
        if (e.type === "ADDED" || e.type === "MODIFIED") {
          shown.value = { lines: differences(shown.value.lines, lines(e.object)), gone: false, at: Date.now() };
        } else if (e.type === "DELETED") shown.value = { ...shown.value, gone: true, at: Date.now() };
        else if (e.type === "SYNCED") shown.value = { ...shown.value, gone: shown.value.at === 0, at: Date.now(), problem: undefined };
      });
    } catch (e) {
      if (signal.aborted) return;
      shown.value = { ...shown.value, problem: e as Error };
      if (e instanceof Problem && e.final) return;
      await new Promise((done) => setTimeout(done, Math.min(5000, 250 * 2 ** tries)));
    }
  }
}

export function ObjectView() {
  const { resource, object } = query.value;
  const path = base.value + "/" + encodeURIComponent(resource);
  useEffect(() => {
    const parts = object.split("/");
    const p = new URLSearchParams({ watch: "true", fieldSelector: "metadata.name=" + parts[parts.length - 1] });
    if (parts.length > 1) p.set("namespace", parts[0]);
    shown.value = { lines: [], gone: false, at: 0 };
    const stop = new AbortController();
    void watch(path + "?" + p, stop.signal);
    return () => stop.abort();
  }, [path, object]);
  const { lines: all, gone, at, problem } = shown.value;
  return (
    <section class={"object" + (problem || gone ? " stale" : "")} aria-label={object}>
      <header>
        <h2>{visibleText(object)}</h2>
        <button type="button" onClick={() => go({ object: "" })} aria-label="close">Esc</button>
      </header>
      <p class="command"><code>{visibleText(command(query.value))}</code></p>
      {gone && <p class="bad" role="alert">{all.length ? "It was deleted. This was its last state." : "There is no such object."}</p>}
      {problem && <p class="bad" role="alert">{visibleText(problem.message)} {at > 0 && `As of ${age((now.value - at) / 1000)} ago.`}</p>}
      <pre tabIndex={0} ref={(e) => {
          if (e && document.activeElement === document.body) e.focus({ preventScroll: true });
        }}>
        {all.map((l, i) => {
          const colon = /^(\s*(?:- )*)("(?:[^"\\]|\\.)*"|[^\s"#][^:]*):( |$)/.exec(l.text);
          const rest = colon ? l.text.slice(colon[0].length - colon[3].length) : l.text;
          return (
            <div key={i + "/" + l.beat} class={l.beat ? "glow-a" : ""}>
              {colon && <>{colon[1]}<span class="field">{visibleText(colon[2])}</span>:</>}
              {visibleText(rest) || (colon ? "" : " ")}
            </div>
          );
        })}
      </pre>
    </section>
  );
}

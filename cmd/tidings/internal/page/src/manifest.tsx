// An object as YAML: lines that can be folded and searched.
import { computed, effect, signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { date, visibleText } from "./format";
import { getJSON } from "./stream";
import { go, query } from "./query";
import { listPath, mask, selected, subject } from "./subject";
import { Failed } from "./object";
import { yaml } from "./yaml";

// A line has the beat at which it came to differ from before, its depth, and the path of
// its field, by which it stays folded.
interface Line { text: string; beat: number; depth: number; path: string }

// Bounds of what is shown of an object: a browser is slow to lay out more.
const mostLines = 10_000;
const longest = 4_000;

const lines = signal<Line[]>([]);
const folded = signal<ReadonlySet<string>>(new Set());
const needle = signal("");
const current = signal(0); // the index of the line that keys act on
const past = signal<{ version: string; object?: any; time?: string; problem?: Error }>({ version: "" });
let beat = 0;

function textOf(object: any): string[] {
  const { managedFields: _, ...metadata } = object.metadata ?? {}; // as kubectl shows objects
  const all = yaml({ ...object, metadata });
  const some = all.slice(0, mostLines).map((l) => (l.length > longest ? `${l.slice(0, longest)}… (${l.length - longest} more characters)` : l));
  return all.length > mostLines ? [...some, `# … ${all.length - mostLines} more lines`] : some;
}

// linesOf gives the lines of an object. Those that are not in before, by their common
// lines, glow.
function linesOf(object: any, before: Line[]): Line[] {
  beat++;
  let from = 0;
  const above: { depth: number; path: string }[] = [];
  return textOf(object).map((text, i) => {
    const indent = text.length - text.trimStart().length;
    const depth = text === "" ? 1e6 : indent + (text.startsWith("- ", indent) ? 1 : 0); // items are as far in as their list
    while (above.length && above[above.length - 1].depth >= depth) above.pop();
    const path = (above[above.length - 1]?.path ?? "") + "\n" + (depth > indent ? `${i}` : /^[^:]*/.exec(text.trim())![0].slice(0, 200));
    above.push({ depth, path });
    const at = before.findIndex((l, n) => n >= from && n < from + 200 && l.text === text);
    if (at >= 0) from = at + 1;
    return { text, beat: at >= 0 ? before[at].beat : before.length ? beat : 0, depth, path };
  });
}

effect(() => {
  const object = query.value.version ? past.value.object : subject.value.object;
  lines.value = object ? linesOf(object, query.value.version ? [] : lines.peek()) : [];
});

// end is the index after the lines that belong to a line.
function end(all: Line[], i: number): number {
  let to = i + 1;
  while (to < all.length && all[to].depth > all[i].depth) to++;
  return to;
}

const found = computed(() => {
  const text = needle.value.toLowerCase();
  return text ? lines.value.flatMap((l, i) => (l.text.toLowerCase().includes(text) ? [i] : [])) : [];
});

// shown are the indexes of the lines that are not in a folded one. What has the current
// line is open.
const shown = computed(() => {
  const out: number[] = [];
  const all = lines.value;
  for (let i = 0; i < all.length; i++) {
    out.push(i);
    if (folded.value.has(all[i].path)) {
      const to = end(all, i);
      if (current.value <= i || current.value >= to) i = to - 1;
    }
  }
  return out;
});

function to(i: number, block: ScrollLogicalPosition = "nearest"): void {
  current.value = Math.max(0, Math.min(i, lines.value.length - 1));
  requestAnimationFrame(() => document.querySelector(".object pre [aria-current]")?.scrollIntoView({ block }));
}

function step(by: number): void {
  const all = shown.value;
  const at = all.indexOf(current.value);
  to(all[Math.max(0, Math.min(at + by, all.length - 1))] ?? 0);
}

function fold(i: number, close: boolean): void {
  const all = lines.value;
  if (!all[i]) return;
  if (close && (end(all, i) === i + 1 || folded.value.has(all[i].path))) {
    for (let up = i - 1; up >= 0; up--) if (all[up].depth < all[i].depth) return to(up);
    return;
  }
  const next = new Set(folded.value);
  next[close ? "add" : "delete"](all[i].path);
  folded.value = next;
  to(i);
}

// foldAll folds the parts of the fields at the top, or opens everything.
function foldAll(): void {
  const all = lines.value;
  folded.value = folded.value.size ? new Set() : new Set(all.filter((l, i) => l.depth > 0 && end(all, i) > i + 1).map((l) => l.path));
  to(0);
}

function next(by: number): void {
  const all = found.value;
  if (!all.length) return;
  const after = by > 0 ? all.find((i) => i > current.value) : all.findLast((i) => i < current.value);
  to(after ?? all[by > 0 ? 0 : all.length - 1], "center");
}

export const manifestKeys: Record<string, () => void> = {
  j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1), PageDown: () => step(20), PageUp: () => step(-20),
  g: () => to(0), Home: () => to(0), G: () => to(lines.value.length - 1), End: () => to(lines.value.length - 1),
  ArrowLeft: () => fold(current.value, true), ArrowRight: () => fold(current.value, false), z: foldAll, n: () => next(1), N: () => next(-1),
};

// search moves to the search, with the YAML if that is not shown.
export function search(): void {
  if (query.value.view !== "yaml") go({ view: "yaml" });
  requestAnimationFrame(() => document.querySelector<HTMLInputElement>(".object .search input")?.select());
}

// Text shows a line: the name of its field quietly, and what was searched for marked.
function Text({ text }: { text: string }) {
  const colon = /^(\s*(?:- )*)("(?:[^"\\]|\\.)*"|[^\s"#][^:]*):( |$)/.exec(text);
  const rest = colon ? text.slice(colon[0].length - colon[3].length) : text;
  return (
    <>
      {colon && <>{colon[1]}<span class="field">{visibleText(colon[2])}</span>:</>}
      {visibleText(rest) || (colon ? "" : " ")}
    </>
  );
}

export function Manifest() {
  const { object, version } = query.value;
  const all = lines.value;
  const matches = new Set(found.value);
  useLayoutEffect(() => { // before something is drawn: not what another object or version has
    current.value = 0;
    folded.value = new Set();
  }, [object]);
  useLayoutEffect(() => {
    if (!version) return;
    const stop = new AbortController();
    past.value = { version };
    getJSON<{ data: any[]; moment: { time: string } }>(listPath.value + "?" + new URLSearchParams({ at: version, ...selected(object) }), stop.signal)
      .then(({ data, moment }) => (past.value = data.length ? { version, object: mask(data[0]), time: moment.time } : { version, problem: new Error("It did not exist then.") }))
      .catch((problem) => !stop.signal.aborted && (past.value = { version, problem }));
    return () => stop.abort();
  }, [object, version]);
  return (
    <>
      {version && (
        <p class="past" role="status">
          <b>Past.</b> Version {visibleText(version)}{past.value.time && <>, of {date(past.value.time)}</>}. <button type="button" onClick={() => go({ version: "" })}>Show it as it is now</button>
        </p>
      )}
      {version && past.value.problem && <Failed problem={past.value.problem} />}
      <label class="search">
        <span>/</span>
        <input
          aria-label="search" spellcheck={false} autocomplete="off" autocapitalize="off" value={needle.value}
          onInput={(e) => {
            needle.value = e.currentTarget.value;
            if (found.value.length) to(found.value.find((i) => i >= current.value) ?? found.value[0], "center");
          }}
          onKeyDown={(e) => e.key === "Enter" && (e.preventDefault(), e.stopPropagation(), e.currentTarget.blur())}
        />
        {needle.value && <span role="status">{found.value.length ? `${found.value.indexOf(current.value) + 1 || "–"} of ${found.value.length}` : "not found"}</span>}
      </label>
      <pre tabIndex={0} ref={(e) => {
          if (e && document.activeElement === document.body) e.focus({ preventScroll: true });
        }}>
        {shown.value.map((i) => {
          const l = all[i];
          const to = end(all, i);
          const closed = folded.value.has(l.path) && (current.value <= i || current.value >= to);
          return (
            <div key={i + "/" + l.beat} class={(l.beat ? "glow-a" : "") + (matches.has(i) ? " found" : "")} aria-current={i === current.value ? "true" : undefined} onClick={() => (current.value = i)}>
              {to > i + 1 && l.text !== "" && <button type="button" class="fold" tabIndex={-1} aria-expanded={!closed} aria-label={closed ? "open" : "fold"} onClick={() => fold(i, !closed)} />}
              <Text text={l.text} />
              {closed && <i> … {to - i - 1}</i>}
            </div>
          );
        })}
      </pre>
    </>
  );
}

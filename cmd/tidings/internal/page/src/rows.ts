// The rows of the view: opens a window of the live table, keeps what comes, and opens
// another when the query or the visible part changes.
import { batch, computed, effect, signal } from "@preact/signals";
import type { Exact } from "./exact";
import { passes } from "./format";
import { query, several, table } from "./query";
import { follow, Problem, token } from "./stream";

export interface Column { name: string; type: string; description?: string; wide?: boolean }
export interface Elapsed { since: number; before?: string; after?: string }
export type Cell = string | number | boolean | null | Exact | Elapsed;
export interface Row { key: string; cells: Cell[]; changed: number[]; isNew: number }

interface Frame {
  columns?: Column[]; total?: number; objects?: number; counts?: { status: string; rows: number }[]; first?: number; keys?: string[];
  rows?: Record<string, Cell[]>; cells?: Record<string, Record<string, Cell>>;
  resourceVersion?: string; synced: boolean; time: number;
  upstream?: Upstream; clusters?: ClusterState[]; moment?: Moment; at?: number;
}

// Moment is the newest change that is shown of the past, and the gap in which the moment lies.
export interface Moment { time: string; gap?: { from: string; to?: string; reason: string; late?: boolean }; thinned?: string }

export interface Upstream { phase: string; since: number; contact: number }
export interface Visible { all: boolean; namespaces: string[]; refused?: string[] }

// ClusterState is what is known of one of several clusters. Without an upstream and a
// problem it is waited for.
export interface ClusterState {
  name: string; objects: number; synced: boolean; upstream?: Upstream; visible?: Visible; moment?: Moment;
  problem?: { status: number; error: string; reason: string };
}

export const columns = signal<Column[]>([]);
export const total = signal(0);
export const objects = signal(0);
export const counts = signal<{ status: string; rows: number }[]>([]);
export const windowFirst = signal(0);
export const rows = signal<Row[]>([]);
export const synced = signal(false);
export const upstream = signal<Upstream | null>(null); // null: of several clusters
export const clusters = signal<ClusterState[]>([]); // if there are several
export const version = signal("");
export const moments = signal<Moment[]>([]); // of each cluster, in the past
export const visible = signal<Visible | null>(null); // the namespaces that the rows are limited to, if they are
export const shown = signal(false); // there are rows of this query
export const widths = signal<number[]>([]);

// link says how the connection is.
export type Link = { state: "connecting" | "open" | "lost"; since: number; problem?: Problem | Error };
export const link = signal<Link>({ state: "connecting", since: Date.now() });
export const heardAt = signal(0); // when the last frame came
export const skew = signal(0); // server's clock minus ours

export const now = signal(Date.now());
setInterval(() => (now.value = Date.now()), 1000);

// part is what is on the screen: the first row and how many there are.
export const part = signal({ first: 0, count: 40 });

const most = 500; // rows of a window

// wanted is the window that fits the screen. It has rows before and after what is on the
// screen, and stays until that gets near to its edge.
let last = { first: 0, count: 120 };
const wanted = computed(() => {
  const { first, count } = part.value;
  const near = Math.floor(count / 3);
  const inside = first - near >= last.first || last.first === 0;
  const enough = first + count + near <= last.first + last.count;
  if (!inside || !enough || last.count < count) {
    last = { first: Math.max(0, first - count), count: Math.min(most, 3 * count) };
  }
  return last;
});

// mayRead are the namespaces that the rows of the present were limited to; "": they were not.
export const mayRead = signal("");
effect(() => {
  const v = visible.value;
  if (shown.value && !query.value.at && !query.value.namespace) mayRead.value = !v || v.all ? "" : v.namespaces.slice(0, 64).join(",");
});

const target = computed(() => {
  const q = query.value;
  const { path, params: p } = table(q.resource);
  // Which namespaces may be seen is found for the present, so the past is asked for by their names.
  const may = q.at && !q.namespace ? mayRead.value : "";
  if (q.namespace || may) p.set("namespace", q.namespace || may);
  else if (!q.at) p.set("visible", "true");
  if (q.at) p.set("at", q.at);
  if (q.labels) p.set("labelSelector", q.labels);
  if (q.fields) p.set("fieldSelector", q.fields);
  if (q.columns || q.wide) p.set("columns", [q.wide ? "*" : "", q.columns].filter(Boolean).join(","));
  const selects = JSON.stringify([path, q.cluster, q.namespace, q.labels, q.fields, q.columns, q.wide]); // at any moment
  if (q.filter) p.set("filter", q.filter);
  if (q.sort) p.set("sort", q.sort);
  if (q.descending) p.set("descending", "true");
  return { selects, at: q.at, path: path + "?" + p };
});

const path = computed(() => `${target.value.path}&first=${wanted.value.first}&count=${wanted.value.count}`);
export const inSight = signal(!document.hidden);
document.addEventListener("visibilitychange", () => (inSight.value = !document.hidden));

let beat = 0;
let known = new Map<string, Row>();

function take(f: Frame): void {
  beat++;
  batch(() => {
    moved = false;
    if (f.columns) { // the frame is complete
      const same = shown.value && f.columns.map((c) => c.name).join() === columns.value.map((c) => c.name).join();
      if (!same) widths.value = f.columns.map((c) => c.name.length + 1);
      columns.value = f.columns;
      known = new Map();
    }
    const grew = synced.value && !f.columns && f.total !== undefined && f.total > total.value; // rows that are loading do not glow
    if (f.total !== undefined) total.value = f.total;
    if (f.objects !== undefined) objects.value = f.objects;
    if (f.counts) counts.value = f.counts;
    if (f.first !== undefined) windowFirst.value = f.first;
    if (f.keys || f.rows || f.cells) {
      const keys = f.keys ?? rows.value.map((r) => r.key);
      const next = new Map<string, Row>();
      keys.forEach((key, i) => {
        const before = known.get(key);
        let row = before;
        const whole = f.rows?.[key];
        const some = f.cells?.[key];
        if (whole) row = { key, cells: whole, changed: [], isNew: grew && !before && i < keys.length - 1 ? beat : 0 };
        else if (before && some) {
          const cells = [...before.cells];
          const changed = [...before.changed];
          for (const at in some) {
            cells[+at] = some[at];
            changed[+at] = beat;
          }
          row = { ...before, cells, changed };
        }
        if (row) next.set(key, row);
      });
      known = next;
      rows.value = [...next.values()];
      measure();
    }
    synced.value = f.synced;
    upstream.value = f.upstream ?? null;
    if (f.clusters || !several(query.value)) clusters.value = f.clusters ?? [];
    if (!several(query.value)) moments.value = f.moment ? [f.moment] : [];
    else if (f.clusters) moments.value = f.clusters.flatMap((c) => (c.moment ? [c.moment] : []));
    version.value = f.resourceVersion ?? "";
    const late = f.time - Date.now();
    if (Math.abs(late - skew.value) > 300) skew.value = late; // less is the time that frames take
    heardAt.value = Date.now();
    shown.value = true;
    if (link.value.state !== "open") link.value = { state: "open", since: Date.now() };
  });
}

// measure widens columns for what they have. They never get narrower while one looks.
function measure(): void {
  const next = [...widths.value];
  let wider = false;
  for (const row of rows.value) {
    row.cells.forEach((cell, i) => {
      const length = Math.min(60, cell === null ? 6 : passes(cell) ? 7 + (cell.before ?? "").length + (cell.after ?? "").length : String(cell).length);
      if (length > (next[i] ?? 0)) {
        next[i] = length;
        wider = true;
      }
    });
  }
  if (wider) widths.value = next;
}

const sleep = (ms: number, signal: AbortSignal) =>
  new Promise<void>((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });

// hideAfter is how long a tab may be hidden before it stops to follow.
const hideAfter = 10_000;

async function run(path: string, signal: AbortSignal): Promise<void> {
  for (let tries = 0; !signal.aborted; tries++) {
    let limits: Visible | null = null;
    try {
      await follow(path, signal, (event, data) => {
        if (event === "visible") {
          limits = data;
          return;
        }
        if (signal.aborted) return;
        visible.value = limits;
        take(data);
        tries = 0;
      });
    } catch (e) {
      if (signal.aborted) return;
      const problem = e as Error;
      if (moved) clear(); // they are of another moment
      link.value = { state: "lost", since: link.value.state === "lost" ? link.value.since : Date.now(), problem };
      if (problem instanceof Problem && problem.final) return;
      await sleep(Math.min(5000, 250 * 2 ** tries), signal);
    }
  }
}

function clear(): void {
  shown.value = false;
  rows.value = [];
  counts.value = [];
  total.value = 0;
}

let selects = "";
let shownAt = "";
let moved = false; // to another moment, whose rows have not come
let stop: AbortController | null = null;

// start follows the query from now on.
export function start(): void {
  effect(() => {
    void token.value;
    const next = path.value;
    if (selects !== target.value.selects + token.value) {
      selects = target.value.selects + token.value;
      batch(() => {
        clear();
        link.value = { state: "connecting", since: Date.now() };
      });
    }
    if (shownAt !== target.value.at) {
      shownAt = target.value.at;
      moved = true;
      link.value = { state: "connecting", since: Date.now() };
    }
    stop?.abort();
    stop = new AbortController();
    if (inSight.value && query.value.resource !== "pipeline") void run(next, stop.signal);
  });
  // A hidden tab costs nothing: it follows again when it is seen.
  let hidden = 0;
  effect(() => {
    clearTimeout(hidden);
    if (!inSight.value) hidden = setTimeout(() => stop?.abort(), hideAfter);
  });
}

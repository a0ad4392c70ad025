// Moments: what the view shows of the past, and the history's reach for the time bar.
import { computed, effect, signal } from "@preact/signals";
import type { Gap } from "./history";
import { clusterOf, go, query, several } from "./query";
import { clusters, link, mayRead, now, skew } from "./rows";
import { getJSON } from "./stream";

interface Reach { data: number[]; begin?: string; end?: string; since: string; until: string; gaps: Gap[]; refused?: string[] }

export const kept = signal(false); // the server keeps a history
export const spans = [15, 60, 360, 1440, 10080]; // minutes that the bar can show
export const span = signal(60);
export const reach = signal<{ since: number; until: number; begin: number; counts: number[]; gaps: Gap[]; all: boolean; end: number } | null>(null);

// at is the moment that is shown, in Unix milliseconds; 0: the present.
export const at = computed(() => (query.value.at ? Date.parse(query.value.at) : 0));

// clock is the time that ages are counted to, in whole seconds.
export const clock = computed(() => at.value || Math.floor((now.value + skew.value) / 1000) * 1000);

// travel shows the view as it was at a moment, or the present.
export function travel(to: number): void {
  const present = to === 0 || to >= Date.now() + skew.value - 1000;
  go({ at: present ? "" : new Date(Math.round(to)).toISOString() }, true);
}

// step goes back or forward by a part of the bar.
export function step(by: number): void {
  const from = at.value || Date.now() + skew.value;
  travel(from + (by * span.value * 60_000) / 60);
}

export function zoom(): void {
  span.value = spans[(spans.indexOf(span.value) + 1) % spans.length];
}

// places are the paths of the selection in each cluster, for lists and changes.
export function places(): string[] {
  const q = query.value;
  const names = several(q) ? clusters.value.filter((c) => !c.problem).map((c) => c.name) : [clusterOf(q)];
  return names.slice(0, 16).map((name) => (name ? "/clusters/" + encodeURIComponent(name) : "") + "/" + encodeURIComponent(q.resource));
}

// selection has the parameters that select the objects of the view, without a moment.
export function selection(): URLSearchParams {
  const q = query.value;
  const p = new URLSearchParams();
  const namespace = q.namespace || mayRead.value;
  if (namespace) p.set("namespace", namespace);
  if (q.labels) p.set("labelSelector", q.labels);
  if (q.fields) p.set("fieldSelector", q.fields);
  return p;
}

// look asks how many changes there were when. If there are too many to look for the
// selectors in all of them, it counts those of all objects.
async function look(paths: string[], p: URLSearchParams, signal: AbortSignal): Promise<void> {
  const until = Date.now() + skew.value;
  const since = until - span.value * 60_000;
  p.set("changes", "true");
  p.set("counts", "120");
  p.set("since", new Date(since).toISOString());
  p.set("until", new Date(until - 1).toISOString());
  const ask = () => Promise.all(paths.map((path) => getJSON<Reach>(path + "?" + p, signal)));
  const ends = () => Math.min(...all.map((r) => Date.parse(r.until)));
  let all = await ask();
  const selects = p.has("labelSelector") || p.has("fieldSelector");
  const tooMany = selects && ends() < until - 1000;
  if (tooMany) {
    p.delete("labelSelector");
    p.delete("fieldSelector");
    all = await ask();
  }
  const counts = new Array<number>(120).fill(0);
  all.forEach((r) => r.data.forEach((n, i) => (counts[i] += n)));
  const begins = all.flatMap((r) => (r.begin ? [Date.parse(r.begin)] : []));
  reach.value = { since, until, begin: begins.length ? Math.min(...begins) : Infinity, counts, gaps: all.flatMap((r) => r.gaps), all: tooMany, end: ends() };
}

// startTime keeps the reach of the history up to date while somebody looks.
export function startTime(): void {
  void getJSON<{ history?: boolean }>("/").then((index) => (kept.value = index.history ?? false)).catch(() => undefined);
  const subject = computed(() => JSON.stringify([kept.value && link.value.state === "open", places(), selection().toString(), span.value]));
  let timer = 0;
  let stop = new AbortController();
  effect(() => {
    const [ready, paths, p] = JSON.parse(subject.value) as [boolean, string[], string];
    clearTimeout(timer);
    stop.abort(); // an answer about what was selected before is of no use
    stop = new AbortController();
    const { signal } = stop;
    if (!ready) return;
    const again = () => {
      if (!document.hidden) void look(paths, new URLSearchParams(p), signal).catch(() => signal.aborted || (reach.value = null));
      timer = setTimeout(again, 20_000);
    };
    timer = setTimeout(again, 300);
  });
}

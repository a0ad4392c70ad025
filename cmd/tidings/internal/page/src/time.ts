// Moments: what the view shows of the past, and the history's reach for the time bar.
import { computed, effect, signal } from "@preact/signals";
import { clusterOf, go, query, several } from "./query";
import { clusters, link, now, skew, visible } from "./rows";
import { getJSON } from "./stream";

export interface Gap { from: string; to?: string; reason: string; late?: boolean }

interface Reach { data: number[]; begin?: string; end?: string; since: string; until: string; gaps: Gap[]; refused?: string[] }

export const kept = signal(false); // the server keeps a history
export const spans = [15, 60, 360, 1440, 10080]; // minutes that the bar can show
export const span = signal(60);
export const reach = signal<{ since: number; until: number; begin: number; counts: number[]; gaps: Gap[] } | null>(null);

// at is the moment that is shown, in Unix milliseconds; 0: the present.
export const at = computed(() => (query.value.at ? Date.parse(query.value.at) : 0));

// clock is the time that ages are counted to.
export const clock = computed(() => at.value || now.value + skew.value);

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
export function selection(withSelectors: boolean): URLSearchParams {
  const q = query.value;
  const p = new URLSearchParams();
  const namespace = q.namespace || (visible.value && !visible.value.all ? visible.value.namespaces.slice(0, 64).join(",") : "");
  if (namespace) p.set("namespace", namespace);
  if (withSelectors && q.labels) p.set("labelSelector", q.labels);
  if (withSelectors && q.fields) p.set("fieldSelector", q.fields);
  return p;
}

async function look(paths: string[], p: URLSearchParams): Promise<void> {
  const until = Date.now() + skew.value;
  const since = until - span.value * 60_000;
  p.set("changes", "true");
  p.set("counts", "120");
  p.set("since", new Date(since).toISOString());
  p.set("until", new Date(until - 1).toISOString());
  const all = await Promise.all(paths.map((path) => getJSON<Reach>(path + "?" + p)));
  const counts = new Array<number>(120).fill(0);
  all.forEach((r) => r.data.forEach((n, i) => (counts[i] += n)));
  const begins = all.flatMap((r) => (r.begin ? [Date.parse(r.begin)] : []));
  reach.value = { since, until, begin: begins.length ? Math.min(...begins) : Infinity, counts, gaps: all.flatMap((r) => r.gaps) };
}

// startTime keeps the reach of the history up to date while somebody looks.
export function startTime(): void {
  void getJSON<{ history?: boolean }>("/").then((index) => (kept.value = index.history ?? false)).catch(() => undefined);
  const subject = computed(() => JSON.stringify([kept.value && link.value.state === "open", places(), selection(false).toString(), span.value]));
  let timer = 0;
  effect(() => {
    const [ready, paths, p] = JSON.parse(subject.value) as [boolean, string[], string];
    clearTimeout(timer);
    if (!ready) return;
    const again = () => {
      if (!document.hidden) void look(paths, new URLSearchParams(p)).catch(() => (reach.value = null));
      timer = setTimeout(again, 20_000);
    };
    timer = setTimeout(again, 300);
  });
}

// The changes of the open object and of what it owns, as far back as they were asked for.
import { signal } from "@preact/signals";
import { date } from "./format";
import { base, query } from "./query";
import { getJSON, Problem } from "./stream";
import { listPath, selected, split, subject } from "./subject";

export interface Field { op: "~" | "+" | "-"; path: string; old?: unknown; new?: unknown }
export interface Writer { manager: string; operation?: string; subresource?: string }
export interface Change {
  type: "ADDED" | "MODIFIED" | "DELETED"; time: string; namespace?: string; name: string; uid: string; resourceVersion: string;
  writers?: Writer[]; owners?: string[]; relist?: boolean; fields?: Field[]; object?: any;
}
export interface Gap { from: string; to?: string; reason: string; late?: boolean }

// A lane has the changes of one object, oldest first.
export interface Lane { key: string; uid: string; kind: string; apiVersion: string; changes: Change[]; gaps: Gap[] }
interface State { lanes: Lane[]; since: number; begin: string; loading: boolean; limits: Record<string, string>; problem?: Error }

const span = 3_600_000; // what is asked for at first
const mostPages = 4; // of 500 changes, of one resource and time
export const mostLanes = 40;

const empty = (): State => ({ lanes: [], since: (Date.parse(query.peek().at) || Date.now()) - span, begin: "", loading: true, limits: {} });
export const history = signal<State>(empty());

interface Page { data: Change[]; gaps: Gap[]; begin: string; continue?: string }

// between gives the changes of a resource between two times, oldest first. If there are
// too many, it gives those of the later part of the time, and since when that is.
async function between(path: string, select: Record<string, string>, since: number, until: number, signal: AbortSignal) {
  for (let halved = 0; ; halved++) {
    const changes: Change[] = [];
    const gaps: Gap[] = [];
    let more: string | undefined = "";
    let begin = "";
    for (let pages = 0; more !== undefined && pages < mostPages; pages++) {
      const p = new URLSearchParams({ changes: "true", since: new Date(since).toISOString(), until: new Date(Math.min(until, Date.now())).toISOString(), ...select });
      if (more) p.set("continue", more);
      const page: Page = await getJSON<Page>(path + "?" + p, signal);
      for (const c of page.data) changes.push({ ...c, object: undefined }); // the whole object is asked for when it is shown
      gaps.push(...page.gaps);
      begin = page.begin;
      more = page.continue;
    }
    if (more === undefined || halved === 12) return { changes, gaps, begin, since };
    since = (Math.max(since, Date.parse(begin)) + Math.min(until, Date.now())) / 2;
  }
}

// owned says what objects of a kind make: the resources, by the labels of their selector.
function owned(object: any): { resources: [path: string, kind: string, apiVersion: string][]; labels: string } {
  const sets: [string, string, string] = ["/apps/v1/replicasets", "ReplicaSet", "apps/v1"];
  const pods: [string, string, string] = ["/core/v1/pods", "Pod", "v1"];
  const resources = ({
    Deployment: [sets, pods], ReplicaSet: [pods], StatefulSet: [pods], DaemonSet: [pods], Job: [pods], ReplicationController: [pods],
    CronJob: [["/batch/v1/jobs", "Job", "batch/v1"], pods],
  } as Record<string, [string, string, string][]>)[object?.kind] ?? [];
  const selector = object?.spec?.selector ?? {};
  const equal = Object.entries<string>(object?.kind === "ReplicationController" ? selector : selector.matchLabels ?? {}).map(([k, v]) => `${k}=${v}`);
  const others = (selector.matchExpressions ?? []).map((e: any) => ({ In: `${e.key} in (${e.values})`, NotIn: `${e.key} notin (${e.values})`, Exists: e.key, DoesNotExist: "!" + e.key })[e.operator as string]);
  return { resources, labels: [...equal, ...others].join(",") };
}

const keyOf = (c: Change) => (c.namespace ? c.namespace + "/" : "") + c.name;

// merge adds changes to lanes, each once and in order.
function merge(lanes: Lane[], key: string, uid: string, kind: string, apiVersion: string, changes: Change[], gaps: Gap[]): void {
  let lane = lanes.find((l) => l.key === key && l.kind === kind && (l === lanes[0] || l.uid === uid));
  if (!lane) lanes.push((lane = { key, uid, kind, apiVersion, changes: [], gaps: [] }));
  const id = (c: Change) => c.type + c.resourceVersion + c.uid;
  const have = new Set(lane.changes.map(id));
  lane.changes = [...lane.changes, ...changes.filter((c) => !have.has(id(c)))].sort((a, b) => Date.parse(a.time) - Date.parse(b.time));
  const known = new Set(lane.gaps.map((g) => g.from));
  lane.gaps = [...lane.gaps.filter((g) => !gaps.some((n) => n.from === g.from)), ...gaps].filter((g, i, all) => known.has(g.from) || all.findIndex((o) => o.from === g.from) === i);
}

let running: AbortSignal | null = null;
let reached = 0; // up to when the changes are known
let listed = new Set<string>(); // the kinds whose existing objects have lanes

// load adds what happened between two times.
async function load(from: number, until: number, signal: AbortSignal): Promise<void> {
  const key = query.value.object;
  const object = subject.peek().object;
  const asked = Date.now();
  const own = await between(listPath.value, selected(key), from, until, signal);
  const before = history.peek();
  const lanes = before.lanes.map((l) => ({ ...l }));
  const first = !lanes.length;
  if (first) lanes.push({ key, uid: object?.metadata?.uid ?? "", kind: object?.kind ?? "", apiVersion: object?.apiVersion ?? "v1", changes: [], gaps: [] });
  merge(lanes, key, lanes[0].uid, lanes[0].kind, lanes[0].apiVersion, own.changes, own.gaps);
  const limits = { ...before.limits };
  let failed = false;
  const publish = (loading: boolean) => (history.value = { lanes: [...lanes], since: Math.min(first ? own.since : before.since, own.since), begin: own.begin, loading, limits });
  publish(true);
  const { resources, labels } = owned(object);
  const [namespace] = split(key);
  const select = { namespace, ...(labels && { labelSelector: labels }) };
  const owners = new Set(lanes.map((l) => l.uid));
  for (const [path, kind, apiVersion] of resources) {
    try {
      const found = await between(base.value + path, select, own.since, until, signal);
      if (!listed.has(kind)) { // what exists and has not changed has a lane, too
        listed.add(kind);
        const existing = await getJSON<{ data: any[]; continue?: string }>(base.value + path + "?" + new URLSearchParams({ limit: "500", ...select }), signal);
        for (const o of existing.data) {
          if (!(o.metadata.ownerReferences ?? []).some((r: any) => owners.has(r.uid))) continue;
          owners.add(o.metadata.uid);
          merge(lanes, `${namespace}/${o.metadata.name}`, o.metadata.uid, kind, apiVersion, [], []);
        }
        if (existing.continue) limits[kind + " all"] = `There are more than 500 ${kind}s with these labels: some have no lane.`;
      }
      for (const c of found.changes) {
        if (!(c.owners ?? []).some((uid) => owners.has(uid))) continue;
        owners.add(c.uid);
        merge(lanes, keyOf(c), c.uid, kind, apiVersion, [c], []);
      }
      for (const l of lanes.slice(1)) if (l.kind === kind) merge(lanes, l.key, l.uid, kind, apiVersion, [], found.gaps);
      if (found.since > own.since) limits[kind + " often"] = `${kind}s have changed too often: their changes are shown since ${date(found.since)}.`;
      delete limits[kind];
    } catch (e) {
      if (signal.aborted) return;
      limits[kind] = `Its ${kind}s are not shown: ${e instanceof Problem && e.status === 403 ? "not permitted. " : ""}${(e as Error).message}`;
      failed ||= !(e instanceof Problem && e.final);
      if (e instanceof Problem && e.status === 410) { // the history of a resource begins when it is read
        await getJSON(base.value + path + "?" + new URLSearchParams({ limit: "1", namespace }), signal).catch(() => undefined);
      }
    }
  }
  if (signal.aborted) return;
  if (until > asked && !failed) reached = asked;
  publish(false);
}

async function guarded(work: Promise<void>, signal: AbortSignal): Promise<void> {
  try {
    await work;
  } catch (e) {
    if (!signal.aborted) history.value = { ...history.value, loading: false, problem: e as Error };
  }
}

const slack = 15_000; // a change may be recorded later than it came

// follow shows the timeline of the open object until the signal: the changes of the last
// hour, and new ones as they come.
export function follow(signal: AbortSignal): void {
  running = signal;
  reached = 0;
  listed = new Set();
  history.value = empty();
  let version: string | undefined;
  let busy = false;
  let due = 0;
  const look = async () => {
    const { object, at, problem } = subject.value;
    const now = object?.metadata?.resourceVersion ?? "";
    if (busy || signal.aborted || document.hidden || (at === 0 && !problem) || (now === version && Date.now() < due)) return;
    busy = true;
    version = now;
    await guarded(load(reached ? reached - slack : history.peek().since, Date.now() + slack, signal), signal);
    due = Date.now() + (reached ? 3000 : 1000); // nothing is known yet, or not of everything
    busy = false;
  };
  const stop = subject.subscribe(() => void look());
  const timer = setInterval(() => {
    const { problem } = history.peek();
    // 410: the history begins when the resource is read, as it is now, and has its first state a moment later.
    if (!(problem instanceof Problem && problem.final && problem.status !== 410)) void look();
  }, 1500);
  signal.addEventListener("abort", () => (stop(), clearInterval(timer)), { once: true });
}

// earlier adds the time before, twice as long each time.
export async function earlier(): Promise<void> {
  const { since, begin, loading, problem } = history.peek();
  if (loading || problem || !running || (begin && since <= Date.parse(begin))) return;
  history.value = { ...history.peek(), loading: true };
  await guarded(load(since - Math.max(span, Date.now() - since), since, running), running);
}

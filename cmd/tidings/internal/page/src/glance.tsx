// An object at a glance: what kubectl describe would say first, by rules that hold for
// every kind.
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { Exact } from "./exact";
import { age, text, tone, visibleText } from "./format";
import { base, clusterOf, go, none, query } from "./query";
import { type Cell, type Column, inSight, type Moment } from "./rows";
import { follow, token } from "./stream";
import { Failed, Unsure } from "./object";
import { listPath, repeat, selected, split, subject } from "./subject";
import { clock } from "./time";

const clip = (s: string, most: number) => visibleText(s.length > most ? `${s.slice(0, most)}… (${s.length - most} more characters)` : s);
const since = (time: string | undefined) => (time ? age((clock.value - Date.parse(time)) / 1000) : "");
const list = (v: any): any[] => (Array.isArray(v) ? v : []);
const map = (v: any): Record<string, any> => (v && typeof v === "object" && !Array.isArray(v) ? v : {});

// A list that is longer is cut, and says so.
const most = 100;

function More({ all }: { all: unknown[] }) {
  return all.length > most ? <li class="quiet">… {all.length - most} more, see the YAML</li> : null;
}

// essentials are kubectl's columns of the object, which the server makes of each version.
const essentials = signal<{ columns: Column[]; cells: Cell[] } | null>(null);

let learned = 0; // when they were asked for last

// learn asks for the columns. It drops the stream after the first frame that has the row.
function learn(path: string, key: string, at: string, signal: AbortSignal): void {
  const enough = new AbortController();
  const params = new URLSearchParams({ window: "true", columns: "*", count: "1", ...selected(key), ...(at && { at }) });
  let columns: Column[] = [];
  follow(path + "?" + params, AbortSignal.any([signal, enough.signal]), (_, frame) => {
    columns = frame.columns ?? columns;
    const cells = Object.values(frame.rows ?? {})[0] as Cell[] | undefined;
    if (cells) essentials.value = { columns, cells };
    if (cells || frame.synced) enough.abort();
  }).catch(() => undefined); // what the object itself says is shown
}

function Essentials() {
  if (!essentials.value) return null;
  const { columns, cells } = essentials.value;
  return (
    <dl class="facts">
      {columns.map((c, i) => {
        const value = text(cells[i] ?? null, clock.value);
        if (["Name", "Namespace"].includes(c.name) || value === "" || value === "<none>") return null;
        return (
          <div key={c.name} title={c.description}>
            <dt>{visibleText(c.name)}</dt>
            <dd class={["Status", "Phase", "State", "Type"].includes(c.name) ? tone(value) : ""}>{clip(value, 300)}</dd>
          </div>
        );
      })}
    </dl>
  );
}

// bad says whether a condition is one to look at. Some are good when they are false.
function conditionTone(c: any): "good" | "bad" | "wait" | "" {
  if (c.status === "Unknown") return "wait";
  const inverted = /Pressure$|Unavailable$|Fail|Degraded|Stalled|Error|Disrupted|DisruptionTarget|Terminating|Conflict|NonStructural|Unschedulable|Dangling/i.test(String(c.type));
  if (/^(Progressing|Complete|Suspended|SuccessCriteriaMet|Resizing|FileSystemResizePending|Reconciling)/.test(String(c.type))) return c.status === "False" && c.type === "Progressing" ? "bad" : "";
  return (c.status === "True") !== inverted ? "good" : "bad";
}

function Conditions({ all }: { all: any[] }) {
  if (!all.length) return null;
  const order = { bad: 0, wait: 1, "": 2, good: 3 };
  const sorted = [...all].map(map).sort((a, b) => order[conditionTone(a)] - order[conditionTone(b)]);
  return (
    <section>
      <h3>Conditions</h3>
      <ul class="conditions">
        {sorted.slice(0, most).map((c, i) => (
          <li key={i}>
            <b class={conditionTone(c) === "good" ? "" : conditionTone(c)}>{clip(String(c.type), 80)}</b> {clip(String(c.status), 40)}
            <span class="quiet"> {c.reason && clip(String(c.reason), 100)} {since(c.lastTransitionTime)}</span>
            {c.message && conditionTone(c) !== "good" && <div class="quiet">{clip(String(c.message), 600)}</div>}
          </li>
        ))}
        <More all={sorted} />
      </ul>
    </section>
  );
}

function containerState(s: any): string {
  const { waiting, running, terminated } = map(s.state);
  if (waiting) return String(waiting.reason ?? "Waiting");
  if (terminated) return `${terminated.reason ?? "Terminated"} (exit ${terminated.exitCode}) ${since(terminated.finishedAt)} ago`;
  if (running) return `Running ${since(running.startedAt)}`;
  return "";
}

// Containers are those of the object, or of the pods that it makes.
function Containers({ object }: { object: any }) {
  const spec = map(object.spec);
  const pod = spec.containers ? spec : map(map(map(spec.jobTemplate).spec).template ?? spec.template).spec ?? {};
  const kinds = [["init", pod.initContainers, "initContainerStatuses"], ["", pod.containers, "containerStatuses"], ["ephemeral", pod.ephemeralContainers, "ephemeralContainerStatuses"]] as const;
  const all = kinds.flatMap(([kind, containers, statuses]) => list(containers).map((c) => ({ kind, c: map(c), s: map(list(object.status?.[statuses]).find((s) => s?.name === c?.name)) })));
  if (!all.length) return null;
  return (
    <section>
      <h3>{spec.containers ? "Containers" : "Containers of its pods"}</h3>
      <ul class="containers">
        {all.slice(0, most).map(({ kind, c, s }, i) => {
          const state = containerState(s);
          const last = map(map(s.lastState).terminated);
          const resources = ["cpu", "memory"].flatMap((r) => {
            const [request, limit] = [map(c.resources).requests?.[r], map(c.resources).limits?.[r]];
            return request || limit ? [`${r} ${request ?? "–"} / ${limit ?? "–"}`] : [];
          });
          return (
            <li key={i}>
              <b>{clip(String(c.name), 80)}</b>{kind && <span class="quiet"> {kind}</span>}{" "}
              {state && <span class={kind === "init" && /^Completed/.test(state) ? "quiet" : tone(state.split(" ")[0]) || "wait"}>{clip(state, 200)}</span>}
              {state && s.ready === false && kind === "" && !/^Completed/.test(state) && <span class="wait"> not ready</span>}
              {s.restartCount > 0 && <span class="wait"> {s.restartCount} {s.restartCount === 1 ? "restart" : "restarts"}</span>}
              <div class="quiet image">{clip(String(c.image ?? ""), 300)}</div>
              {resources.length > 0 && <div class="quiet">request / limit: {resources.join(", ")}</div>}
              {last.exitCode !== undefined && <div>last ended {since(last.finishedAt)} ago: <span class={last.exitCode ? "bad" : ""}>{clip(String(last.reason ?? ""), 100)}, exit {String(last.exitCode)}</span>{last.message && <> {clip(String(last.message), 400)}</>}</div>}
              {map(s.state).waiting?.message && <div class="quiet">{clip(String(s.state.waiting.message), 400)}</div>}
            </li>
          );
        })}
        <More all={all} />
      </ul>
    </section>
  );
}

// fields are the fields of a status that have one value, with their paths.
function fields(v: Record<string, any>, path: string, out: [string, string][]): [string, string][] {
  for (const [key, value] of Object.entries(v)) {
    if (out.length > most) break;
    if (["conditions", "containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses", "images"].includes(key) && !path) continue;
    if (Array.isArray(value)) {
      if (value.length && value.every((x) => typeof x !== "object" || x instanceof Exact)) out.push([path + key, value.slice(0, 20).join(", ")]);
    } else if (value && typeof value === "object" && !(value instanceof Exact)) {
      if (path.split(".").length < 3) fields(value, path + key + ".", out);
    } else if (value !== null && value !== "") out.push([path + key, String(value)]);
  }
  return out;
}

function Facts({ title, all }: { title: string; all: [string, string][] }) {
  if (!all.length) return null;
  return (
    <section>
      <h3>{title}</h3>
      <dl class="facts">
        {all.slice(0, most).map(([name, value]) => (
          <div key={name}>
            <dt>{clip(name, 200)}</dt>
            <dd>{clip(value, 300)}</dd>
          </div>
        ))}
      </dl>
      {all.length > most && <p class="quiet">… {all.length - most} more, see the YAML</p>}
    </section>
  );
}

// openOther opens an object that the open one refers to, of the same moment.
export function openOther(apiVersion: string, kind: string, key: string): void {
  const group = apiVersion.includes("/") ? "." + apiVersion.split("/")[0] : "";
  go({ ...none, cluster: clusterOf(query.value), at: query.value.at, resource: kind.toLowerCase() + group, namespace: split(key)[0], object: key });
}

function Owners({ object }: { object: any }) {
  const all = list(object.metadata?.ownerReferences).map(map);
  const namespace = object.metadata?.namespace;
  if (!all.length) return null;
  return (
    <p class="owners">
      Owned by{" "}
      {all.slice(0, most).map((o, i) => (
        <button key={i} type="button" onClick={() => openOther(String(o.apiVersion), String(o.kind), (namespace ? namespace + "/" : "") + o.name)}>
          {clip(`${o.kind} ${o.name}`, 200)}
        </button>
      ))}
    </p>
  );
}

interface EventRow { cells: Record<string, Cell>; key: string }
interface EventsState { rows: EventRow[]; total: number; synced: boolean; moment?: Moment; problem?: Error }
const noEvents: EventsState = { rows: [], total: 0, synced: false };
const events = signal(noEvents);

// followEvents follows the newest events about an object, or shows those of a moment: a
// window of the table of events, so that the server sorts and cuts.
function followEvents(object: any, at: string, signal: AbortSignal): void {
  const { kind, metadata } = object;
  events.value = noEvents;
  const columns = ["Last Seen", "Type", "Reason", "Count", "Message"];
  const params = new URLSearchParams({
    window: "true", namespace: metadata.namespace ?? "default", fieldSelector: `involvedObject.kind=${kind},involvedObject.name=${metadata.name}`,
    columns: columns.join(","), sort: "Last Seen", count: "50", ...(at && { at }),
  });
  let known = new Map<string, Cell[]>();
  let names: string[] = columns;
  void repeat(
    base.value + "/core/v1/events?" + params,
    signal,
    (_, f) => {
      if (f.columns) {
        known = new Map(); // the frame is complete
        names = f.columns.map((c: Column) => c.name);
      }
      const keys: string[] = f.keys ?? [...known.keys()];
      const next = new Map<string, Cell[]>();
      for (const key of keys) {
        const cells = [...((f.rows?.[key] as Cell[]) ?? known.get(key) ?? [])];
        for (const at in f.cells?.[key] ?? {}) cells[+at] = f.cells[key][at];
        next.set(key, cells);
      }
      known = next;
      const rows = [...known].map(([key, cells]) => ({ key, cells: Object.fromEntries(names.map((n, i) => [n, cells[i]])) }));
      events.value = { rows, total: f.total ?? events.value.total, synced: f.synced, moment: f.moment ?? events.value.moment };
    },
    (problem) => (events.value = { ...events.value, problem }),
  );
}

function Events() {
  const { rows, total, synced, moment, problem } = events.value;
  const at = clock.value;
  return (
    <section>
      <h3>Events</h3>
      {moment && <p><Unsure moment={moment} /></p>}
      {problem && <Failed problem={problem} />}
      {!problem && synced && total === 0 && <p class="quiet">There {moment ? "were" : "are"} none. A cluster keeps events for an hour or so.</p>}
      {!problem && !synced && <p class="quiet">loading…</p>}
      <ul class={"events" + (problem ? " stale" : "")}>
        {rows.map(({ key, cells }) => (
          <li key={key}>
            <span class="when">{text(cells["Last Seen"], at)}</span>
            <div>
              <b class={cells.Type === "Warning" ? "bad" : ""}>{clip(text(cells.Reason, at), 100)}</b>
              {Number(cells.Count) > 1 && <span class="quiet"> ×{text(cells.Count, at)}</span>} {clip(text(cells.Message, at), 600)}
            </div>
          </li>
        ))}
        {total > rows.length && <li class="quiet">… {total - rows.length} older ones</li>}
      </ul>
    </section>
  );
}

export function Glance({ object }: { object: any }) {
  const path = listPath.value;
  const { object: key, at } = query.value;
  const uid = object.metadata?.uid;
  const seen = inSight.value;
  useLayoutEffect(() => { // before something is drawn: not what another object has
    const stop = new AbortController();
    if (seen && object.kind !== "Event") followEvents(object, at, stop.signal);
    return () => stop.abort();
  }, [path, key, at, uid, token.value, seen]);
  // The columns are made again when the object has changed, once a second at most.
  useLayoutEffect(() => {
    essentials.value = null;
  }, [path, key, at]);
  useEffect(() => {
    const stop = new AbortController();
    const wait = essentials.peek() ? learned + 1000 - Date.now() : 0;
    const timer = setTimeout(() => {
      learned = Date.now();
      learn(path, key, at, stop.signal);
    }, Math.max(0, wait));
    return () => (clearTimeout(timer), stop.abort());
  }, [path, key, object]);
  const { labels, annotations, deletionTimestamp, finalizers } = map(object.metadata);
  const { "kubectl.kubernetes.io/last-applied-configuration": _, ...noted } = map(annotations);
  const pairs = (v: any) => Object.entries(map(v)).map(([k, x]) => [k, String(x)] as [string, string]);
  return (
    <div class="scroll" role="region" tabIndex={0} aria-label="at a glance" ref={(e) => {
        if (e && document.activeElement === document.body) e.focus({ preventScroll: true });
      }}>
      {deletionTimestamp && !subject.value.gone && <p class="wait">It is being deleted, for {since(deletionTimestamp)}.{list(finalizers).length > 0 && ` It waits for: ${clip(list(finalizers).join(", "), 300)}`}</p>}
      <Essentials />
      <Owners object={object} />
      <Conditions all={list(object.status?.conditions)} />
      <Containers object={object} />
      {object.kind !== "Event" && <Events />}
      <Facts title="Status" all={fields(map(object.status), "", [])} />
      <Facts title="Data" all={pairs(object.data)} />
      <Facts title="Labels" all={pairs(labels)} />
      <Facts title="Annotations" all={pairs(noted)} />
    </div>
  );
}

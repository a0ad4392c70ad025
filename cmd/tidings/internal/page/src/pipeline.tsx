// The pipeline: how the changes of each resource come from the API servers, and how far
// they have got to those who read them.
import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { age, date, hour, visibleText } from "./format";
import type { Gap } from "./history";
import { go, none, query } from "./query";
import { inSight, now } from "./rows";
import { getJSON, Problem, token } from "./stream";

interface Resource {
  synced: boolean; required?: boolean; phase: string; objects: number; received?: number; expected?: number; error?: string;
  since?: string; contact?: string; retry?: string; bytes: number; changes: number; retained: number;
  requests: { lists: number; watches: number; failed: number }; lastFailure?: { error: string; time: string };
  watches: { open: number; behind?: { changes: number; since?: string; folded?: number }[] };
  history?: { begin: string; seen: string; versions: number; gaps: number; lastGap?: Gap; failing?: string };
}
interface Cluster { name: string; default?: boolean; health: string; error?: string; resources?: Record<string, Resource> }
interface Usage { version: string; memory: number; memoryLimit?: number; requests: number; watches: number; connections: number; historyBytes?: number }
interface Answer { data: Cluster[]; time: string; server?: Usage }

const state = signal<{ answer?: Answer; at: number; skew: number; problem?: Error }>({ at: 0, skew: 0 });
export const isPipeline = computed(() => query.value.resource === "pipeline");
const thousands = new Intl.NumberFormat("en");
const every = 2000; // milliseconds between two looks

function bytes(n: number): string {
  for (const unit of ["B", "KB", "MB"]) {
    if (n < 1000) return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1000;
  }
  return `${n.toFixed(1)} GB`;
}

const ago = (time: string | undefined) => (time ? age(Math.max(0, now.value + state.value.skew - Date.parse(time)) / 1000) : "–");
const plural = (n: number, one: string) => `${thousands.format(n)} ${n === 1 ? one : one + (/(s|ch)$/.test(one) ? "es" : "s")}`;

// help says what would make a resource ready.
function help(r: Resource): string {
  const because = r.error || r.lastFailure?.error || "";
  if (r.phase === "denied" || /forbidden/i.test(because)) return "Allow the mirror's account to get, list and watch it in the cluster.";
  if (r.phase === "gone" || r.phase === "stopped") return "The cluster does not serve it: look for its definition, and at --resource.";
  if (r.phase === "waiting") return `It is tried again by itself${r.retry && Date.parse(r.retry) > now.value ? ", at " + hour(r.retry) : ""}. Look at the API server if it goes on.`;
  if (r.phase === "listing") return "The list is in progress. Nothing needs to be done.";
  return "Look at the log of the server.";
}

function troubles(c: Cluster): { name: string; why: string; help: string; bad: boolean }[] {
  const out = [];
  if (c.error) out.push({ name: c.name, why: c.error, help: "See whether the API server can be reached from the server of this page, and its credentials in the kubeconfig.", bad: true });
  for (const [name, r] of Object.entries(c.resources ?? {})) {
    if (r.error || !r.synced || !["watching"].includes(r.phase)) {
      const why = r.error ?? (r.received ? `${r.phase}, ${thousands.format(r.received)}${r.expected ? " of " + thousands.format(r.expected) : ""} objects so far` : r.phase);
      out.push({ name, why, help: help(r), bad: Boolean(r.error) });
    }
    if (r.history?.failing) out.push({ name: "history of " + name, why: r.history.failing, help: "Make room on the disk, or set a smaller --history-size. The history goes on by itself.", bad: true });
  }
  return out;
}

function Watches({ watches }: { watches: Resource["watches"] }) {
  const late = (since?: string) => since && now.value + state.value.skew - Date.parse(since) > 1000;
  const behind = (watches.behind ?? []).filter((b) => late(b.since)); // a change that has just come is on its way
  if (!watches.open) return <span class="quiet">none</span>;
  if (!behind.length) return <>{watches.open} <span class="good">caught up</span></>;
  return (
    <span title={behind.map((b) => `${plural(b.changes, "change")} behind${b.since ? " for " + ago(b.since) : ""}${b.folded ? `, ${b.folded} folded` : ""}`).join("\n")}>
      {watches.open}, <span class="wait">{behind.length} behind by up to {plural(behind[0].changes, "change")}{behind[0].since && ` for ${ago(behind[0].since)}`}</span>
    </span>
  );
}

const heads = [
  ["Resource", "of the API"], ["Phase", "what the mirror does, and for how long"], ["Heard", "how long ago the API server last sent something, a change or a sign of life"],
  ["Objects", "in memory"], ["Memory", "of the objects"], ["Changes", "since the start; and how many are retained for watches that resume"],
  ["Watches served", "watches, and tables of this page: caught up, or how far behind"], ["Requests", "put to the API server to mirror this: lists, watches, failed ones"],
  ["Relists", "lists after the first, and the last failure"], ["History", "how far back, and its gaps"],
] as const;

function Line({ name, r, cluster }: { name: string; r: Resource; cluster: Cluster }) {
  const relists = Math.max(0, r.requests.lists - 1);
  const cells = [
    <button type="button" onClick={() => go({ ...none, resource: name.split("/")[0].replace(/\.v\w+(?=\.|$)/, ""), cluster: cluster.default ? "" : cluster.name })}>{visibleText(name)}</button>,
    <><span class={r.phase === "watching" ? "good" : r.error ? "bad" : "wait"}>{r.phase}</span> <span class="quiet">{ago(r.since)}</span></>,
    ago(r.contact),
    thousands.format(r.objects),
    bytes(r.bytes),
    <>{thousands.format(r.changes)} <span class="quiet">{thousands.format(r.retained)} kept</span></>,
    <Watches watches={r.watches} />,
    <>{plural(r.requests.lists, "list")}, {plural(r.requests.watches, "watch")}{r.requests.failed > 0 && <span class="wait">, {r.requests.failed} failed</span>}</>,
    <>
      {relists || <span class="quiet">none</span>}
      {r.lastFailure && <span class="quiet" title={r.lastFailure.error}> last failure {ago(r.lastFailure.time)} ago: {visibleText(r.lastFailure.error.slice(0, 120))}</span>}
    </>,
    r.history ? (
      <>
        {ago(r.history.begin)}{" "}
        <span class={r.history.gaps ? "wait" : "quiet"} title={r.history.lastGap && `the last one: ${date(r.history.lastGap.from)}, ${r.history.lastGap.reason}`}>{r.history.gaps ? plural(r.history.gaps, "gap") : "no gaps"}</span>
      </>
    ) : <span class="quiet">none</span>,
  ];
  return <tr>{cells.map((c, i) => (i ? <td key={i} data-label={heads[i][0]} class={[2, 3, 4].includes(i) ? "number" : ""}>{c}</td> : <th key={i} scope="row">{c}</th>))}</tr>;
}

// PipelineFresh says how old what the page shows is.
export function PipelineFresh() {
  const { at, problem } = state.value;
  if (problem) return <span class="fresh bad" role="status">{at ? `connection lost · as of ${age((now.value - at) / 1000)} ago` : "not connected"}</span>;
  return <span class={"fresh " + (at ? "good" : "wait")} role="status">{at ? "live" : "connecting…"}</span>;
}

// usePipeline looks at the pipeline as long as it is shown.
function usePipeline(): void {
  const seen = inSight.value;
  useEffect(() => {
    if (!seen) return;
    const stop = new AbortController();
    let timer = 0;
    const look = async () => {
      try {
        const answer = await getJSON<Answer>("/clusters", stop.signal);
        state.value = { answer, at: Date.now(), skew: Date.parse(answer.time) - Date.now() };
      } catch (e) {
        if (stop.signal.aborted) return;
        state.value = { ...state.value, problem: e as Error };
      }
      timer = setTimeout(() => void look(), every);
    };
    void look();
    return () => (stop.abort(), clearTimeout(timer));
  }, [seen, token.value]);
}

export function Pipeline({ ask }: { ask: (message: string) => preact.ComponentChildren }) {
  usePipeline();
  const { answer, problem } = state.value;
  if (problem instanceof Problem && problem.status === 401) return <>{ask(token.value ? "The cluster does not accept this token." : "Who are you? The cluster asks for a bearer token.")}</>;
  const s = answer?.server;
  return (
    <div class={"pipeline" + (problem ? " stale" : "")} role="region" tabIndex={0} aria-label="pipeline" ref={(e) => {
        if (e && document.activeElement === document.body) e.focus({ preventScroll: true });
      }}>
      {problem && <p class="bad" role="alert">{problem instanceof Problem ? visibleText(problem.message) : "No connection to the server. Trying again by itself."}</p>}
      {s && (
        <p class="usage">
          Tidings {visibleText(s.version)} <span><b>{bytes(s.memory)}</b> memory{s.memoryLimit && ` of ${bytes(s.memoryLimit)}`}</span> <span><b>{s.watches}</b> watches and windows open</span> <span><b>{s.connections}</b> connections</span>{" "}
          <span>{s.historyBytes === undefined ? "no history: start the server with --history" : <><b>{bytes(s.historyBytes)}</b> history</>}</span>
        </p>
      )}
      {answer && !s && <p class="bad" role="alert"><b>Not permitted. </b>What is mirrored, and how, is shown to callers that may <code>get /metrics</code> in the default cluster.</p>}
      {(answer?.data ?? []).map((c) => {
        const all = Object.entries(c.resources ?? {});
        const wrong = troubles(c);
        return (
          <section key={c.name}>
            <h2>{visibleText(c.name)} <span class={{ ok: "good", unused: "good", syncing: "wait", degraded: "wait", failing: "bad" }[c.health] ?? ""}>{visibleText(c.health)}</span></h2>
            {wrong.length > 0 && (
              <ul class="wrong">
                {wrong.slice(0, 50).map((w) => (
                  <li key={w.name}><b class={w.bad ? "bad" : "wait"}>{visibleText(w.name)}</b> {visibleText(w.why.slice(0, 400))} <span class="quiet">{visibleText(w.help)}</span></li>
                ))}
              </ul>
            )}
            {all.length > 0 && (
              <table>
                <thead><tr>{heads.map(([h, title], i) => <th key={h} scope="col" title={title} class={[2, 3, 4].includes(i) ? "number" : ""}>{h}</th>)}</tr></thead>
                <tbody>{all.map(([name, r]) => <Line key={name} name={name} r={r} cluster={c} />)}</tbody>
              </table>
            )}
            {s && all.length === 0 && <p class="quiet">Nothing is mirrored yet: a resource is, from its first read.</p>}
          </section>
        );
      })}
      {answer && answer.data.length === 0 && <p class="quiet">There is no cluster.</p>}
    </div>
  );
}

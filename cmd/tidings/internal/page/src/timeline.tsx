// The timeline of the open object: its changes, and those of what it owns.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { age, visibleText } from "./format";
import { type Change, earlier, follow, type Gap, history, type Lane } from "./history";
import { Lanes } from "./lanes";
import { go, query } from "./query";
import { now, skew } from "./rows";
import { Failed } from "./object";
import { openOther } from "./glance";
import { subject } from "./subject";

// chosen is the index of the change that keys act on, and marked the version to compare with.
const chosen = signal(0);
export const marked = signal("");
const all = signal(false); // the changes of what the object owns are in the list

const longest = 400;

// value shows one side of a field. A Secret's are their sizes.
function value(v: unknown, secret: boolean): string {
  if (v === undefined) return "";
  if (secret) return `(${typeof v === "number" ? v : "…"} bytes)`;
  const text = typeof v === "string" ? v : JSON.stringify(v);
  return visibleText(text.length > longest ? `${text.slice(0, longest)}… (${text.length} characters)` : text);
}

// Fields shows what is different, field by field.
export function Fields({ fields, kind }: { fields: Change["fields"]; kind: string }) {
  const most = 200;
  return (
    <ul class="fields">
      {(fields ?? []).slice(0, most).map((f, i) => {
        const secret = kind === "Secret" && /^\.(data|stringData)\b/.test(f.path);
        return (
          <li key={i}>
            <span class={f.op === "-" ? "bad" : f.op === "+" ? "good" : "quiet"}>{f.op}</span> <span class="field">{visibleText(f.path.slice(0, 500))}</span>{" "}
            {f.op !== "+" && <del>{value(f.old, secret)}</del>}
            {f.op === "~" && " → "}
            {f.op !== "-" && <ins>{value(f.new, secret)}</ins>}
          </li>
        );
      })}
      {(fields?.length ?? 0) > most && <li class="quiet">… {fields!.length - most} more fields</li>}
    </ul>
  );
}

function writers(c: Change): string {
  return [...new Set((c.writers ?? []).map((w) => w.manager + (w.subresource ? " (" + w.subresource + ")" : "")))].join(", ");
}

const clock = (time: string) => new Date(time).toLocaleTimeString();
const day = (time: string) => new Date(time).toLocaleDateString();
const what: Record<string, string> = { ADDED: "created", MODIFIED: "changed", DELETED: "deleted" };

type Entry = { lane: Lane; change: Change } | { lane: Lane; gap: Gap };
const timeOf = (e: Entry) => ("gap" in e ? e.gap.to ?? new Date(now.value).toISOString() : e.change.time);

// entries are the changes and gaps in the list, newest first.
function entries(): Entry[] {
  const lanes = history.value.lanes;
  const shown = all.value ? lanes : lanes.slice(0, 1);
  const out: Entry[] = shown.flatMap((lane) => lane.changes.map((change) => ({ lane, change })));
  out.push(...(lanes[0]?.gaps ?? []).map((gap) => ({ lane: lanes[0], gap })));
  return out.sort((a, b) => Date.parse(timeOf(b)) - Date.parse(timeOf(a)));
}

// most is the number of changes in the list. Further ones are counted.
const most = 500;

function move(to: number): void {
  chosen.value = Math.max(0, Math.min(to, Math.min(entries().length, most) - 1));
  requestAnimationFrame(() => document.querySelector(".object .changes [aria-current]")?.scrollIntoView({ block: "nearest" }));
}

function openVersion(e: Entry | undefined): void {
  if (!e || "gap" in e) return;
  if (e.lane.key === query.value.object) go({ view: "yaml", version: e.change.resourceVersion });
  else openOther(e.lane.apiVersion, e.lane.kind, e.lane.key);
}

// mark chooses a version to compare with; a second one is compared with the first.
function mark(e: Entry | undefined): void {
  if (!e || "gap" in e || e.lane.key !== query.value.object) return;
  const version = e.change.resourceVersion;
  if (!marked.value || marked.value === version) marked.value = marked.value ? "" : version;
  else {
    const [from, to] = [marked.value, version].sort((a, b) => a.length - b.length || (a < b ? -1 : 1));
    marked.value = "";
    go({ view: "compare", from, to, with: "" });
  }
}

export const timelineKeys: Record<string, () => void> = {
  j: () => move(chosen.value + 1), ArrowDown: () => move(chosen.value + 1), k: () => move(chosen.value - 1), ArrowUp: () => move(chosen.value - 1),
  PageDown: () => move(chosen.value + 10), PageUp: () => move(chosen.value - 10), g: () => move(0), G: () => move(most),
  Enter: () => openVersion(entries()[chosen.value]), x: () => mark(entries()[chosen.value]), e: () => void earlier(), a: () => (all.value = !all.value),
};

export function Timeline() {
  const { object, resource, cluster } = query.value;
  const uid = subject.value.object?.metadata?.uid;
  useEffect(() => {
    const stop = new AbortController();
    chosen.value = 0;
    marked.value = "";
    follow(stop.signal);
    return () => stop.abort();
  }, [object, resource, cluster, uid]);
  const { lanes, since, begin, loading, problem, limits } = history.value;
  const list = entries();
  let lastDay = "";
  return (
    <div class="scroll" role="region" tabIndex={0} aria-label="timeline" ref={(e) => {
        if (e && document.activeElement === document.body) e.focus({ preventScroll: true });
      }}>
      {problem && <Failed problem={problem}>{/--history/.test(problem.message) && "Then it keeps every version of what it mirrors, and this shows what changed and who changed it. The demo keeps one by itself."}</Failed>}
      {!problem && <Lanes />}
      {Object.values(limits).map((l) => <p class="quiet" key={l}>{visibleText(l)}</p>)}
      {lanes.length > 1 && (
        <p class="choose">
          <button type="button" aria-pressed={all.value} onClick={() => (all.value = !all.value)}><kbd>a</kbd>{all.value ? "Only its own changes" : `With those of the ${lanes.length - 1} objects that it owns`}</button>
        </p>
      )}
      <ol class="changes">
        {list.slice(0, most).map((e, i) => {
          const newDay = day(timeOf(e)) !== lastDay;
          lastDay = day(timeOf(e));
          const current = i === chosen.value ? "true" : undefined;
          if ("gap" in e) {
            return (
              <li key={"gap" + i} class="gap" aria-current={current}>
                <b>Gap</b> {clock(e.gap.from)} – {e.gap.to ? clock(e.gap.to) : "now"}: {e.gap.late ? "changes were recorded after it" : "changes may be missing"}, {visibleText(e.gap.reason)}
              </li>
            );
          }
          const c = e.change;
          const own = e.lane.key === object;
          return (
            <li key={c.uid + c.resourceVersion + c.type} aria-current={current} class={marked.value === c.resourceVersion && own ? "marked" : ""} onClick={() => (chosen.value = i)} onDblClick={() => openVersion(e)}>
              {newDay && <h3>{lastDay}</h3>}
              <div class="head">
                <time dateTime={c.time} title={c.time}>{clock(c.time)}</time> <span class="quiet">{age((now.value + skew.value - Date.parse(c.time)) / 1000)} ago</span>{" "}
                <b class={c.type === "DELETED" ? "bad" : c.type === "ADDED" ? "good" : ""}>{what[c.type] ?? c.type}</b>{" "}
                {!own && <span>{visibleText(e.lane.kind + " " + c.name)}</span>}
                <span class="writers">{visibleText(writers(c)) || (c.relist ? "found by a list" : "")}</span>
                {own && (
                  <span class="acts">
                    <button type="button" tabIndex={-1} title="compare this version with another (x)" aria-pressed={marked.value === c.resourceVersion} onClick={() => mark(e)}>{marked.value && marked.value !== c.resourceVersion ? "compare" : "mark"}</button>
                    <button type="button" tabIndex={-1} title="show this version (Enter)" onClick={() => openVersion(e)}>YAML</button>
                  </span>
                )}
              </div>
              <Fields fields={c.fields} kind={e.lane.kind} />
            </li>
          );
        })}
      </ol>
      {list.length > most && <p class="quiet">… {list.length - most} more changes, choose a shorter time</p>}
      {!problem && !loading && list.length === 0 && <p class="quiet">Nothing has changed since {new Date(since).toLocaleString()}.</p>}
      {!problem && (
        <p class="earlier">
          {loading ? "loading…" : begin && since <= Date.parse(begin) ? `The history begins at ${new Date(begin).toLocaleString()}.` : <button type="button" onClick={() => void earlier()}><kbd>e</kbd>Earlier than {new Date(since).toLocaleString()}</button>}
        </p>
      )}
    </div>
  );
}

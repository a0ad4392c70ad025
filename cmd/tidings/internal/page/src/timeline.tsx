// The timeline of the open object: its changes, and those of what it owns.
import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { age, date, hour, visibleText } from "./format";
import { Fields, gapText, toneOf, what, writers } from "./difference";
import { type Change, earlier, follow, type Gap, history, type Lane } from "./history";
import { Lanes } from "./lanes";
import { go, query } from "./query";
import { now, skew } from "./rows";
import { Failed } from "./object";
import { openOther } from "./glance";
import { subject } from "./subject";
import { at } from "./time";

// chosen is the index of the change that keys act on, -1 for that of the moment that is
// shown. marked is the version to compare with.
const chosen = signal(-1);
export const marked = signal("");
const all = signal(false); // the changes of what the object owns are in the list

const day = (time: string) => new Date(time).toLocaleDateString();

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

function here(): number {
  if (chosen.value >= 0) return chosen.value;
  const list = entries();
  const then = at.value ? list.findIndex((e) => Date.parse(timeOf(e)) <= at.value) : 0;
  return then >= 0 ? then : Math.min(list.length, most) - 1; // all are later: the first of them
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
  j: () => move(here() + 1), ArrowDown: () => move(here() + 1), k: () => move(here() - 1), ArrowUp: () => move(here() - 1),
  PageDown: () => move(here() + 10), PageUp: () => move(here() - 10), g: () => move(0), G: () => move(most),
  Enter: () => openVersion(entries()[here()]), x: () => mark(entries()[here()]), e: () => void earlier(), a: () => (all.value = !all.value),
};

export function Timeline() {
  const { object, resource, cluster } = query.value;
  const uid = subject.value.object?.metadata?.uid;
  const moment = at.value;
  useLayoutEffect(() => { // before something is drawn: not what another object had
    const stop = new AbortController();
    chosen.value = -1;
    marked.value = "";
    follow(stop.signal);
    return () => stop.abort();
  }, [object, resource, cluster, uid, moment]);
  const { lanes, since, begin, loading, problem, limits } = history.value;
  const list = entries();
  const current = here();
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
          const isChosen = i === current ? "true" : undefined;
          if ("gap" in e) {
            return (
              <li key={"gap" + i} class="gap" aria-current={isChosen}>
                <b>Gap</b> {hour(e.gap.from)} – {e.gap.to ? hour(e.gap.to) : "now"}: {gapText(e.gap)}
              </li>
            );
          }
          const c = e.change;
          const own = e.lane.key === object;
          return (
            <li key={c.uid + c.resourceVersion + c.type} aria-current={isChosen} class={marked.value === c.resourceVersion && own ? "marked" : ""} onClick={() => (chosen.value = i)} onDblClick={() => openVersion(e)}>
              {newDay && <h3>{lastDay}</h3>}
              <div class="head">
                <time dateTime={c.time} title={c.time}>{hour(c.time)}</time> <span class="quiet">{age((now.value + skew.value - Date.parse(c.time)) / 1000)} ago</span>{" "}
                <b class={toneOf(c)}>{what(c)}</b>{" "}
                {!own && <span>{visibleText(e.lane.kind + " " + c.name)}</span>}
                <span class="writers">{visibleText(writers(c)) || (c.relist ? "found by a list" : "")}</span>
                {own && (
                  <span class="acts">
                    <button type="button" tabIndex={-1} title="compare this version with another (x)" aria-pressed={marked.value === c.resourceVersion} onClick={() => mark(e)}>{marked.value && marked.value !== c.resourceVersion ? "compare" : "mark"}</button>
                    <button type="button" tabIndex={-1} title="show this version (Enter)" onClick={() => openVersion(e)}>YAML</button>
                  </span>
                )}
              </div>
              <Fields fields={c.fields} secret={e.lane.kind === "Secret"} />
            </li>
          );
        })}
      </ol>
      {list.length > most && <p class="quiet">… {list.length - most} more changes, choose a shorter time</p>}
      {!problem && !loading && list.length === 0 && <p class="quiet">Nothing has changed since {date(since)}.</p>}
      {!problem && (
        <p class="earlier">
          {loading ? "loading…" : begin && since <= Date.parse(begin) ? `The history begins at ${date(begin)}.` : <button type="button" onClick={() => void earlier()}><kbd>e</kbd>Earlier than {date(since)}</button>}
        </p>
      )}
    </div>
  );
}

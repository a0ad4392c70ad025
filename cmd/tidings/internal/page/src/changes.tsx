// What changed around a moment: all changes of the selection, with gaps in their places.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { visibleText } from "./format";
import { go, query } from "./query";
import { getJSON } from "./stream";
import { at, type Gap, places, selection } from "./time";

interface Field { op: string; path: string; old?: unknown; new?: unknown }
interface Change { type: string; time: string; namespace?: string; name: string; uid: string; resourceVersion: string; writers?: { manager?: string }[]; relist?: boolean; fields?: Field[] }
interface Page { data: Change[]; gaps: Gap[]; continue?: string; refused?: string[]; thinned?: string }
interface Found { changes: (Change & { cluster: string })[]; gaps: Gap[]; more: [path: string, token: string][]; refused: string[]; thinned: string; problem?: Error; loading: boolean }

const nothing: Found = { changes: [], gaps: [], more: [], refused: [], thinned: "", loading: true };
const found = signal<Found>(nothing);
const perPage = 200;
const mostFields = 8;

// load takes the next page of each path.
async function load(pages: [path: string, token: string][], still: () => boolean): Promise<void> {
  try {
    const got = await Promise.all(pages.map(([path, token]) => getJSON<Page>(path + (token && "&continue=" + encodeURIComponent(token)))));
    if (!still()) return;
    const next = { ...found.value, loading: false, more: [] as Found["more"] };
    got.forEach((p, i) => {
      const cluster = pages[i][0].startsWith("/clusters/") ? decodeURIComponent(pages[i][0].split("/")[2]) : "";
      next.changes = next.changes.concat(p.data.map((c) => ({ ...c, cluster })));
      next.gaps = next.gaps.concat(p.gaps.filter((g) => !next.gaps.some((h) => h.from === g.from)));
      next.refused = p.refused ?? next.refused;
      next.thinned = p.thinned ?? next.thinned;
      if (p.continue) next.more.push([pages[i][0], p.continue]);
    });
    next.changes.sort((a, b) => Date.parse(a.time) - Date.parse(b.time));
    found.value = next;
  } catch (problem) {
    if (still()) found.value = { ...found.value, loading: false, problem: problem as Error };
  }
}

const secret = () => /^secrets?(\.|$)/i.test(query.value.resource);

// value shows the value of a field. Those of Secrets are hidden.
function value(f: Field, of: unknown): string {
  if (secret() && /^\.?(data|stringData)|last-applied-configuration/.test(f.path)) return "••••••";
  const text = typeof of === "string" ? of : JSON.stringify(of) ?? "";
  return text.length > 120 ? text.slice(0, 120) + "…" : text;
}

function Difference({ f }: { f: Field }) {
  return (
    <div class="difference">
      <span class="field">{visibleText(f.path)}</span>{" "}
      {f.op !== "+" && <del>{visibleText(value(f, f.old))}</del>}
      {f.op === "~" && " → "}
      {f.op !== "-" && <ins>{visibleText(value(f, f.new))}</ins>}
    </div>
  );
}

const time = (text: string) => new Date(text).toLocaleTimeString(undefined, { hour12: false });
const verb: Record<string, string> = { ADDED: "created", MODIFIED: "changed", DELETED: "deleted" };

// Changes is shown in the place of the table.
export function Changes() {
  const q = query.value;
  const radius = +q.around * 60_000;
  const until = at.value ? at.value + radius : 0;
  const paths = JSON.stringify(places().map((path) => {
    const p = selection(true);
    p.set("changes", "true");
    p.set("limit", String(perPage));
    if (at.value) {
      p.set("since", new Date(at.value - radius).toISOString());
      if (until < Date.now()) p.set("until", new Date(until).toISOString());
    } else p.set("since", `-${q.around}m`);
    return path + "?" + p;
  }));
  useEffect(() => {
    let left = false;
    found.value = nothing;
    void load((JSON.parse(paths) as string[]).map((path) => [path, ""]), () => !left);
    return () => { left = true; };
  }, [paths]);
  const { changes, gaps, more, refused, thinned, problem, loading } = found.value;
  const entries = [...changes.map((c) => ({ time: Date.parse(c.time), c, g: null as Gap | null })), ...gaps.map((g) => ({ time: Date.parse(g.from), c: null, g }))].sort((a, b) => a.time - b.time);
  return (
    <section class="around" aria-label="changes" tabIndex={0} ref={(e) => { if (e && document.activeElement === document.body) e.focus({ preventScroll: true }); }}>
      <p>
        <b>{changes.length}{more.length > 0 && "+"} changes</b> {at.value ? `${q.around} minutes before and after` : `in the last ${q.around} minutes`}{" "}
        {[10, 60, 360].map((m) => <button key={m} type="button" class={String(m) === q.around ? "good" : ""} onClick={() => go({ around: String(m) }, true)}>{m < 60 ? m + "m" : m / 60 + "h"}</button>)}
        <button type="button" onClick={() => go({ around: "" })}>close</button>
        {thinned && <span class="wait"> {visibleText(thinned)}</span>}
        {refused.length > 0 && <span class="bad"> not permitted: {visibleText(refused.join(", "))}</span>}
      </p>
      {problem && <p class="bad" role="alert">{visibleText(problem.message)}</p>}
      <ol>
        {entries.map(({ c, g }) => c ? (
          <li key={c.cluster + c.uid + c.resourceVersion + c.type}>
            <time dateTime={c.time} title={c.time}>{time(c.time)}</time>
            <div>
              <button type="button" onClick={() => go({ around: "", object: (c.namespace ? c.namespace + "/" : "") + c.name, of: c.cluster, at: new Date(c.time).toISOString() })}>
                {visibleText((c.cluster && query.value.cluster !== c.cluster ? c.cluster + " " : "") + (c.namespace ? c.namespace + "/" : "") + c.name)}
              </button>{" "}
              <span class={c.type === "DELETED" ? "bad" : "quiet"}>{verb[c.type] ?? c.type}{c.relist && ", found by a list"}</span>{" "}
              <span class="quiet">{visibleText([...new Set((c.writers ?? []).map((w) => w.manager ?? ""))].filter(Boolean).join(", "))}</span>
              {(c.fields ?? []).slice(0, mostFields).map((f) => <Difference key={f.path} f={f} />)}
              {(c.fields ?? []).length > mostFields && <div class="quiet">and {c.fields!.length - mostFields} more fields</div>}
            </div>
          </li>
        ) : (
          <li key={g!.from} class="gap">
            <time dateTime={g!.from}>{time(g!.from)}</time>
            <div>gap until {g!.to ? time(g!.to) : "now"}: {visibleText(g!.reason)}{g!.late ? " (recorded late, nothing missed)" : " (changes may be missing)"}</div>
          </li>
        ))}
      </ol>
      {loading && <p class="quiet">loading…</p>}
      {!loading && !problem && entries.length === 0 && <p class="quiet">Nothing changed.</p>}
      {more.length > 0 && <p><button type="button" class="good" onClick={() => void load(more, () => true)}>more</button></p>}
    </section>
  );
}

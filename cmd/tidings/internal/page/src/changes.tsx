// What changed around a moment: all changes of the selection, with gaps in their places.
import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { Fields, gapText, toneOf, what, writers } from "./difference";
import { hour, visibleText } from "./format";
import type { Change, Gap } from "./history";
import { Failed } from "./object";
import { go, query } from "./query";
import { getJSON } from "./stream";
import { at, places, selection } from "./time";

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
      next.changes = next.changes.concat(p.data.map((c) => ({ ...c, cluster, object: undefined })));
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


// Changes is shown in the place of the table.
export function Changes() {
  const q = query.value;
  const radius = +q.around * 60_000;
  const until = at.value ? at.value + radius : 0;
  const paths = JSON.stringify(places().map((path) => {
    const p = selection();
    p.set("changes", "true");
    p.set("limit", String(perPage));
    if (at.value) {
      p.set("since", new Date(at.value - radius).toISOString());
      if (until < Date.now()) p.set("until", new Date(until).toISOString());
    } else p.set("since", `-${q.around}m`);
    return path + "?" + p;
  }));
  useLayoutEffect(() => { // before something is drawn: not what another view found
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
      {problem && <Failed problem={problem} />}
      <ol>
        {entries.map(({ c, g }) => c ? (
          <li key={c.cluster + c.uid + c.resourceVersion + c.type}>
            <time dateTime={c.time} title={c.time}>{hour(c.time)}</time>
            <div>
              <button type="button" onClick={() => go({ around: "", object: (c.namespace ? c.namespace + "/" : "") + c.name, of: c.cluster, at: new Date(c.time).toISOString() })}>
                {visibleText((c.cluster && query.value.cluster !== c.cluster ? c.cluster + " " : "") + (c.namespace ? c.namespace + "/" : "") + c.name)}
              </button>{" "}
              <span class={toneOf(c)}>{what(c)}{c.relist && ", found by a list"}</span>{" "}
              <span class="quiet">{visibleText(writers(c))}</span>
              <Fields fields={c.fields} secret={secret()} most={mostFields} />
            </div>
          </li>
        ) : (
          <li key={g!.from} class="gap">
            <time dateTime={g!.from}>{hour(g!.from)}</time>
            <div>gap until {g!.to ? hour(g!.to) : "now"}: {gapText(g!)}</div>
          </li>
        ))}
      </ol>
      {loading && <p class="quiet">loading…</p>}
      {!loading && !problem && entries.length === 0 && <p class="quiet">Nothing changed.</p>}
      {more.length > 0 && <p><button type="button" class="good" onClick={() => void load(more, () => true)}>more</button></p>}
    </section>
  );
}

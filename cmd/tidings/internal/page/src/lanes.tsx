// The lanes of a timeline: when the object and what it owns existed, changed, and were
// not followed.
import { signal } from "@preact/signals";
import { hour, visibleText } from "./format";
import { type Change, history, type Lane, mostLanes } from "./history";
import { now, skew } from "./rows";
import { openOther } from "./glance";
import { at as moment } from "./time";

const width = 1000;
const few = 10; // lanes that are shown at first
const every = signal(false);

function Row({ lane, since, until, own }: { lane: Lane; since: number; until: number; own: boolean }) {
  const x = (time: number) => Math.max(0, Math.min(width, ((time - since) / (until - since)) * width));
  const at = (c: Change) => Date.parse(c.time);
  const lives: [number, number][] = []; // when it existed
  let from = lane.changes[0]?.type === "ADDED" ? -1 : since;
  for (const c of lane.changes) {
    if (c.type === "ADDED" && from < 0) from = at(c);
    if (c.type === "DELETED" && from >= 0) {
      lives.push([from, at(c)]);
      from = -1;
    }
  }
  if (from >= 0) lives.push([from, until]);
  const name = lane.key.slice(lane.key.indexOf("/") + 1);
  const said = `${lane.kind} ${name}: ${lane.changes.length === 1 ? "1 change" : lane.changes.length + " changes"}${lane.gaps.length ? ", with gaps" : ""}`;
  const label = <><span class="quiet">{visibleText(lane.kind)}</span> {visibleText(name)}</>;
  return (
    <li>
      {own ? <span class="name">{label}</span> : <button type="button" class="name" title={visibleText(said)} onClick={() => openOther(lane.apiVersion, lane.kind, lane.key)}>{label}</button>}
      <svg viewBox={`0 0 ${width} 14`} preserveAspectRatio="none" role="img" aria-label={visibleText(said)}>
        {lives.map(([a, b]) => <rect key={a} class="life" x={x(a)} width={Math.max(1, x(b) - x(a))} y="6" height="2" />)}
        {lane.gaps.map((g) => <rect key={g.from} class={g.late ? "hole late" : "hole"} x={x(Date.parse(g.from))} width={Math.max(2, x(g.to ? Date.parse(g.to) : until) - x(Date.parse(g.from)))} y="0" height="14" />)}
        {moment.value > 0 && <rect class="marker" x={Math.min(width - 2, x(moment.value))} width="2" y="0" height="14" />}
        {lane.changes.slice(-500).map((c) => <rect key={c.resourceVersion + c.type} class={c.type.toLowerCase()} x={Math.min(width - 3, x(at(c)))} width="3" y={c.type === "MODIFIED" ? 3 : 1} height={c.type === "MODIFIED" ? 8 : 12} />)}
      </svg>
      <span class="times">{lane.changes.length || ""}</span>
    </li>
  );
}

export function Lanes() {
  const { lanes, since, begin } = history.value;
  if (!lanes.length) return null;
  const until = now.value + skew.value;
  const from = begin ? Math.max(since, Date.parse(begin)) : since;
  const last = (l: Lane) => (l.changes.length ? Date.parse(l.changes[l.changes.length - 1].time) : 0);
  // Pods come last, as there are many of them; those that changed last come first.
  const owned = lanes.slice(1).sort((a, b) => Number(a.kind === "Pod") - Number(b.kind === "Pod") || last(b) - last(a));
  const most = every.value ? mostLanes : few;
  return (
    <div class="lanes">
      <p class="axis"><span>{hour(from)}</span><span>now</span></p>
      <ul>
        {[lanes[0], ...owned.slice(0, most)].map((l, i) => <Row key={l.kind + l.uid + i} lane={l} since={from} until={Math.max(until, from + 1000)} own={i === 0} />)}
      </ul>
      {owned.length > few && (
        <p class="choose">
          <button type="button" onClick={() => (every.value = !every.value)}>{every.value ? "Fewer lanes" : `${Math.min(owned.length, mostLanes) - few} more lanes`}</button>
          {owned.length > most && <span class="quiet"> It owns {owned.length} objects. The lanes are of those that changed last.</span>}
        </p>
      )}
    </div>
  );
}

import { age, hour, visibleText } from "./format";
import { query } from "./query";
import { moments } from "./rows";
import { at, clock, kept, reach, span, travel, zoom } from "./time";

const width = 600; // of the drawing, which is stretched
const height = 22;

function clockText(ms: number): string {
  const d = new Date(ms);
  const day = Math.abs(Date.now() - ms) > 12 * 3600_000 ? d.toLocaleDateString(undefined, { month: "short", day: "numeric" }) + " " : "";
  return day + hour(ms);
}

const spanText = (minutes: number) => (minutes < 60 ? minutes + "m" : minutes < 1440 ? minutes / 60 + "h" : minutes / 1440 + "d");

let pending = 0;

// counted says of what the changes in the bar are, where that is not what the table shows.
function counted(): string {
  const r = reach.value;
  if (!r) return "";
  return [
    r.all ? "changes of all " + query.value.resource + ": too many to look for the labels and fields" : query.value.filter && "counted without the filter",
    r.end < r.until - 1000 && "counted until " + clockText(r.end),
  ].filter(Boolean).join(", ");
}

// TimeBar shows when the selection has changed, as far back as the history reaches, and
// takes the moment that is to be shown.
export function TimeBar() {
  const r = reach.value;
  if (!kept.value || (!r && !at.value)) return null;
  const since = r?.since ?? at.value - span.value * 60_000;
  const until = r?.until ?? Date.now();
  const x = (ms: number) => (width * Math.max(0, Math.min(1, (ms - since) / (until - since))));
  const most = Math.max(1, ...(r?.counts ?? []));
  const step = width / (r?.counts.length || 1);
  const shown = at.value || until;
  const gap = moments.value.find((m) => m.gap)?.gap;
  return (
    <section class={"time" + (at.value ? " past" : "")} aria-label="time">
      <button type="button" tabIndex={-1} title="show another time span (z)" onClick={zoom}>−{spanText(span.value)}</button>
      <div class="bar-of-time" title="changes of what is selected">
        <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
          {r && <rect class="unknown" x="0" y="0" width={x(Math.min(r.begin, until))} height={height} />}
          {r?.gaps.map((g) => (
            <rect key={g.from} class="gap" x={x(Date.parse(g.from))} y="0" width={Math.max(1, x(g.to ? Date.parse(g.to) : until) - x(Date.parse(g.from)))} height={height} />
          ))}
          {r?.counts.map((n, i) => n > 0 && <rect key={i} class="count" x={i * step} y={height - Math.max(2, (n / most) * height)} width={Math.max(1, step - 1)} height={height} />)}
          {at.value > 0 && <rect class="marker" x={Math.min(width - 2, x(at.value))} y="0" width="2" height={height} />}
        </svg>
        <input
          type="range" class="moment" aria-label="the moment that is shown" aria-valuetext={at.value ? clockText(at.value) : "now"}
          min={since} max={until} step={(until - since) / 240} value={shown}
          onInput={(e) => {
            const to = +e.currentTarget.value;
            clearTimeout(pending);
            pending = setTimeout(() => travel(to >= until ? 0 : to), 80); // not each place that is passed
          }}
        />
      </div>
      {at.value ? (
        <span role="status">
          <b>{clockText(at.value)}</b> {age((Date.now() - at.value) / 1000)} ago{" "}
          {gap && <span class="bad" title={visibleText(gap.reason)}>in a gap: {visibleText(gap.reason)} </span>}
          <button type="button" tabIndex={-1} onClick={() => travel(0)}>now</button>
        </span>
      ) : <span>now</span>}
      {counted() && <span class="counted">{visibleText(counted())}</span>}
    </section>
  );
}

export function focusTime(): void {
  document.querySelector<HTMLInputElement>(".moment")?.focus();
}

// AsOf marks what is shown as past.
export function AsOf() {
  return <span class="fresh wait" role="status" title={query.value.at}>past · {clockText(clock.value)}</span>;
}

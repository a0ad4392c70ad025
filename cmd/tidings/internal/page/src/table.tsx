import { computed, effect, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { passes, text, tone, visibleText } from "./format";
import { go, type Query, query, several } from "./query";
import { type Cell, clusters, columns, link, part, type Row, rows, shown, synced, total, visible, widths, windowFirst } from "./rows";
import { signal } from "@preact/signals";
import { clock } from "./time";

export const rowHeight = 26;

// cursor is the index of the chosen row.
export const cursor = signal(0);
const scroller = { element: null as HTMLElement | null };

// move moves the cursor and keeps it in sight.
export function move(to: number): void {
  cursor.value = Math.max(0, Math.min(to, total.value - 1));
  const box = scroller.element;
  if (!box) return;
  const top = cursor.value * rowHeight;
  const height = box.clientHeight - rowHeight; // without the header
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + rowHeight > box.scrollTop + height) box.scrollTop = top + rowHeight - height;
}

export function pageSize(): number {
  return Math.max(1, Math.floor((scroller.element?.clientHeight ?? 400) / rowHeight) - 2);
}

export const chosen = computed<Row | undefined>(() => rows.value[cursor.value - windowFirst.value]);

// sortBy sorts by a column, or the other way round if it is sorted by that already.
export function sortBy(index: number): void {
  const column = columns.value[index];
  if (!column) return;
  const again = query.value.sort === column.name;
  go(again && query.value.descending ? { sort: "", descending: false } : { sort: column.name, descending: again }, true);
}

// objectOf is the object of a row, as a query names it.
function objectOf(row: Row): Pick<Query, "object" | "of"> {
  const slash = several(query.value) ? row.key.indexOf("/") : -1; // after the cluster
  return { object: row.key.slice(slash + 1), of: slash < 0 ? "" : decodeURIComponent(row.key.slice(0, slash)) };
}

export function open(row: Row | undefined): void {
  if (row) go(objectOf(row));
}

// Empty says that there is nothing, as far as one may see.
function Empty() {
  const missing = clusters.value.filter((c) => !c.upstream && !c.moment).map((c) => c.name);
  const refused = visible.value?.refused ?? clusters.value.flatMap((c) => c.visible?.refused ?? []);
  const where = [...missing, ...refused.map((n) => "namespace " + n)];
  if (where.length > 0) return <p class="empty">None where you can see. Not shown: {visibleText(where.join(", "))}.</p>;
  const limits = [visible.value, ...clusters.value.map((c) => c.visible)].filter((v) => v && !v.all);
  if (limits.some((v) => !v!.namespaces.length)) return <p class="empty bad">Not permitted in any of the namespaces that have some.</p>;
  if (limits.length > 0 && !query.value.filter) return <p class="empty">None in the namespaces that you may read.</p>;
  return <p class="empty">{query.value.filter ? "No row passes the filter." : "There are none."}</p>;
}

// Time shows a time since an event, which changes by itself.
function Time({ cell }: { cell: Cell }) {
  return <>{visibleText(text(cell, clock.value))}</>;
}

// A Line is drawn again only if one of these is another.
function Line({ row, index, numeric, status }: { row: Row; index: number; numeric: boolean[]; status: number }) {
  const isChosen = index === cursor.value;
  const parity = (beat: number | undefined) => (beat ? (beat % 2 ? " glow-a" : " glow-b") : "");
  return (
    <tr aria-rowindex={index + 2} aria-selected={isChosen} class={(isChosen ? "chosen" : "") + parity(row.isNew)} onClick={() => (cursor.value = index)} onDblClick={() => open(row)}>
      {row.cells.map((cell, i) => {
        const moves = passes(cell);
        const content = moves ? "" : visibleText(text(cell, 0));
        return (
          <td key={i + "/" + (row.changed[i] ?? 0)} class={(numeric[i] ? "number" : "") + (i === status ? " " + tone(String(cell)) : "") + parity(row.changed[i])} title={content.length > 20 ? content : undefined}>
            {moves ? <Time cell={cell} /> : content}
          </td>
        );
      })}
      <td />
    </tr>
  );
}

const numbers = computed(() => columns.value.map((c) => c.type === "integer" || c.type === "number" || /^(Ready|Restarts|Age|Last Seen|Duration|Desired|Current|Up-to-date|Available|Count)$/i.test(c.name)));

export function Table() {
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  useEffect(() => {
    const element = box.current!;
    scroller.element = element;
    const look = () => {
      top.value = element.scrollTop;
      const first = Math.floor(element.scrollTop / rowHeight);
      const count = Math.ceil(element.clientHeight / rowHeight) + 1;
      if (first !== part.value.first || count !== part.value.count) part.value = { first, count };
    };
    look();
    element.addEventListener("scroll", look, { passive: true });
    const size = new ResizeObserver(look);
    size.observe(element);
    // Another selection or order begins at the top. The row of an object that was opened in another
    // way, such as by a URL, is chosen once, if it is among the first that come.
    let before = "";
    let opened = "";
    let drawn: Row[] | null = null;
    let drawnFor = "";
    const stop = effect(() => {
      const { resource, cluster, namespace, labels, fields, filter, sort, descending, columns, object, of } = query.value;
      const selects = JSON.stringify([resource, cluster, namespace, labels, fields, filter, sort, descending, columns]);
      if (before && before !== selects) {
        element.scrollTop = 0;
        cursor.value = 0;
        opened = "";
      }
      before = selects;
      if (drawn !== rows.value) [drawn, drawnFor] = [rows.value, selects]; // after a change of the query, the rows are of the one before for a moment
      const place = object && of + "/" + object;
      if (opened === place || (place && drawnFor !== selects)) return;
      const row = drawn.findIndex((r) => {
        const o = objectOf(r);
        return o.object === object && o.of === of;
      });
      if (row >= 0) cursor.value = windowFirst.value + row;
      if (!place || row >= 0 || (shown.value && synced.value)) opened = place;
    });
    return () => (stop(), size.disconnect(), element.removeEventListener("scroll", look));
  }, []);
  const cols = columns.value;
  const numeric = numbers.value;
  const status = cols.findIndex((c) => ["Status", "Phase", "State", "Type"].includes(c.name));
  const before = windowFirst.value * rowHeight;
  const after = Math.max(0, total.value - windowFirst.value - rows.value.length) * rowHeight;
  const { sort, descending } = query.value;
  return (
    <div class={"rows" + (link.value.state !== "open" ? " stale" : "")} ref={box} role="region" tabIndex={0} aria-label={query.value.resource}>
      {shown.value && (
        <table aria-rowcount={total.value + 1}>
          <colgroup>
            {cols.map((c, i) => (
              <col key={c.name} style={{ "--width": `calc(${widths.value[i] ?? 10}ch + ${i === 0 ? 28 : 12}px)` }} />
            ))}
            <col class="rest" />
          </colgroup>
          <thead>
            <tr aria-rowindex={1}>
              {cols.map((c, i) => (
                <th key={c.name} scope="col" class={numeric[i] ? "number" : ""} aria-sort={c.name.toLowerCase() === sort.toLowerCase() ? (descending ? "descending" : "ascending") : "none"} title={c.description}>
                  <button type="button" tabIndex={-1} onClick={() => sortBy(i)}>
                    {visibleText(c.name)}
                  </button>
                </th>
              ))}
              <td />
            </tr>
          </thead>
          <tbody>
            <tr aria-hidden="true" class="space" style={{ height: before + "px" }} />
            {rows.value.map((row, i) => (
              <Line key={row.key} row={row} index={windowFirst.value + i} numeric={numeric} status={status} />
            ))}
            <tr aria-hidden="true" class="space" style={{ height: after + "px" }} />
          </tbody>
        </table>
      )}
      {shown.value && synced.value && total.value === 0 && <Empty />}
    </div>
  );
}

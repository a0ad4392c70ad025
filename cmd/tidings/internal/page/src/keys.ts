import { signal } from "@preact/signals";
import { go, none, print, query } from "./query";
import { columns, total } from "./rows";
import { objectKey } from "./objectkeys";
import { copy, copyCommand } from "./status";
import { ownCommand } from "./subject";
import { step, travel, zoom } from "./time";
import { focusTime } from "./timebar";
import { chosen, cursor, move, open, pageSize, sortBy } from "./table";

// panel is what is open above the table.
export const panel = signal<"" | "prompt" | "filter" | "help" | "token">("");

// help lists the keys. It is what the page shows for "?".
export const help: [string, string][] = [
  [":", "what to show: pods app=web /shop @prod; several: /shop,web @*; a field as a column: +.spec.nodeName"],
  ["/", "filter the rows as you type; !word for those without it"],
  ["j k ↓ ↑", "next row, previous row"],
  ["PgDn PgUp g G", "page, first row, last row"],
  ["Enter", "open the object"],
  ["Esc", "close, clear the filter, or go back to now"],
  ["1 … 9", "sort by that column; again: the other way round; again: not"],
  ["< >", "sort by the column before, or after"],
  ["0", "sort by namespace and name"],
  ["w", "all columns, or the usual ones"],
  ["b", "the time bar: ← → move it; -15m or a time at the prompt does, too"],
  ["[ ]", "back in time, forward in time"],
  ["n", "now"],
  ["z", "another time span of the bar"],
  ["x", "what changed around here"],
  ["d y r h =", "the open object: at a glance, as YAML, its tree (what belongs to it), its timeline (history), compare"],
  ["/ n N", "in YAML: search, next, the one before; ← → fold and open, z all"],
  ["j k Enter", "in a tree: the next object, the one before; open it"],
  ["Enter x e a", "in a timeline: this version as YAML, mark two to compare, earlier, with what it owns"],
  ["p", "the pipeline: how fresh the mirror is"],
  ["c C", "copy as a kubectl command, as a tidings command"],
  ["t", "use a token"],
  ["?", "these keys"],
];

function sortNext(by: number): void {
  const at = columns.value.findIndex((c) => c.name === query.value.sort);
  const to = columns.value[Math.max(0, Math.min(at + by, columns.value.length - 1))];
  if (to) go({ sort: to.name, descending: false }, true);
}

function back(): void {
  if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
  if (panel.value) panel.value = "";
  else if (query.value.version) go({ version: "" });
  else if (query.value.object) go({ object: "", view: "", from: "", with: "", to: "" });
  else if (query.value.around) go({ around: "" });
  else if (query.value.filter) go({ filter: "" }, true);
  else if (query.value.at) travel(0);
  else if (query.value.resource === "pipeline") window.history.back();
}

// show opens a panel with an input, and moves the focus there at once: the next key
// belongs to it.
export function show(name: "prompt" | "filter"): void {
  panel.value = name;
  const input = document.querySelector<HTMLInputElement>(`.${name} input`)!;
  const hidden = input.closest<HTMLElement>("[hidden]");
  if (hidden) hidden.hidden = false;
  if (name === "prompt") input.value = print(query.value);
  input.focus();
  input.select();
}

const actions: Record<string, () => void> = {
  ":": () => show("prompt"),
  "/": () => show("filter"),
  "?": () => (panel.value = panel.value === "help" ? "" : "help"),
  t: () => (panel.value = "token"),
  Escape: back,
  j: () => move(cursor.value + 1),
  ArrowDown: () => move(cursor.value + 1),
  k: () => move(cursor.value - 1),
  ArrowUp: () => move(cursor.value - 1),
  PageDown: () => move(cursor.value + pageSize()),
  PageUp: () => move(cursor.value - pageSize()),
  g: () => move(0),
  Home: () => move(0),
  G: () => move(total.value - 1),
  End: () => move(total.value - 1),
  Enter: () => open(chosen.value),
  "0": () => go({ sort: "", descending: false }, true),
  "<": () => sortNext(-1),
  ">": () => sortNext(1),
  w: () => go({ wide: !query.value.wide }, true),
  b: focusTime,
  "[": () => step(-1),
  "]": () => step(1),
  n: () => travel(0),
  z: zoom,
  x: () => go({ around: query.value.around ? "" : "10" }),
  c: copyCommand,
  C: () => copy(ownCommand()),
  p: () => go({ ...none, resource: "pipeline" }),
};

export function listen(): void {
  addEventListener("keydown", (e) => {
    const typing = e.target instanceof HTMLInputElement;
    if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing) return;
    if (typing && !(e.key === "Escape")) return;
    if (typing && (e.target as HTMLElement).closest(".object")) return (e.target as HTMLElement).blur();
    if (e.key === "Enter" && e.target instanceof HTMLButtonElement) return;
    const reading = (query.value.object !== "" || query.value.around !== "") && panel.value === "";
    if (query.value.resource === "pipeline" && !(panel.value ? ["Escape"] : ["Escape", ":", "?", "c", "C", "t"]).includes(e.key)) return;
    const own = reading && query.value.object ? objectKey(e.key) : undefined;
    if (reading && !own && !["Escape", ":", "?", "c", "C", "p", "t", "b", "[", "]", "n", "z", "x"].includes(e.key)) return; // the keys scroll what is read
    const action = own ?? (/^[1-9]$/.test(e.key) ? () => sortBy(+e.key - 1) : actions[e.key]);
    if (!action) return;
    e.preventDefault();
    action();
  });
}

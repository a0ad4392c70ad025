// Texts as kubectl has them.
import { Exact } from "./exact";
import type { Cell, Elapsed } from "./rows";

// age is HumanDuration of k8s.io/apimachinery.
export function age(seconds: number): string {
  const s = Math.floor(seconds);
  if (s < -1) return "<invalid>";
  if (s < 0) return "0s";
  if (s < 120) return s + "s";
  const m = Math.floor(s / 60);
  if (m < 10) return m + "m" + (s % 60 ? (s % 60) + "s" : "");
  if (m < 180) return m + "m";
  const h = Math.floor(m / 60);
  if (h < 8) return h + "h" + (m % 60 ? (m % 60) + "m" : "");
  if (h < 48) return h + "h";
  const d = Math.floor(h / 24);
  if (h < 192) return d + "d" + (h % 24 ? (h % 24) + "h" : "");
  if (d < 730) return d + "d";
  const y = Math.floor(d / 365);
  if (d < 2920) return y + "y" + (d % 365 ? (d % 365) + "d" : "");
  return y + "y";
}

// hour and date are how times are written: with 24 hours, in the order of the browser's language.
export const hour = (time: string | number): string => new Date(time).toLocaleTimeString(undefined, { hour12: false });
export const date = (time: string | number): string => new Date(time).toLocaleString(undefined, { hour12: false });

// passes reports whether a cell is the time since an event, which changes by itself.
export const passes = (cell: Cell): cell is Elapsed => typeof cell === "object" && cell !== null && !(cell instanceof Exact);

export function text(cell: Cell, now: number): string {
  if (cell === null || cell === undefined) return "";
  if (passes(cell)) return (cell.before ?? "") + age(now / 1000 - cell.since) + (cell.after ?? "");
  return String(cell);
}

// tone says how good a status is. Unknown ones are neutral.
export function tone(status: string): "good" | "wait" | "bad" | "" {
  if (/^(Running|Ready|Active|Bound|Available|Healthy|True|Complete|Completed|Succeeded|Normal|Established|Synced)$/.test(status)) return "good";
  if (/Err|Fail|Crash|BackOff|Evicted|OOM|NotReady|Unknown|Lost|Invalid|Degraded|Warning|Unhealthy|DeadlineExceeded|ContainerCannotRun/i.test(status)) return "bad";
  if (/Pending|Creating|Init|Terminating|Waiting|Progressing|Released|Suspended|SchedulingDisabled|Unschedulable/i.test(status)) return "wait";
  return "";
}

// visibleText shows characters that change the direction of text, or have no shape, by
// their code points: a name must not look like another one.
export function visibleText(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

// How a change is drawn: what happened, who did it, and each field that differs.
import { visibleText } from "./format";
import type { Change, Field, Gap } from "./history";

const longest = 400;

// value shows one side of a field. A Secret's are their sizes.
function value(v: unknown, secret: boolean): string {
  if (v === undefined) return "";
  if (secret) return `(${typeof v === "number" ? v : "…"} bytes)`;
  const text = typeof v === "string" ? v : JSON.stringify(v);
  return visibleText(text.length > longest ? `${text.slice(0, longest)}… (${text.length} characters)` : text);
}

// Fields shows what is different, field by field.
export function Fields({ fields, secret, most = 200 }: { fields: Field[] | undefined; secret: boolean; most?: number }) {
  return (
    <ul class="fields">
      {(fields ?? []).slice(0, most).map((f, i) => {
        const hidden = secret && /^\.(data|stringData)\b/.test(f.path);
        return (
          <li key={i}>
            <span class={f.op === "-" ? "bad" : f.op === "+" ? "good" : "quiet"}>{f.op}</span>{"\u00a0"}<span class="field">{visibleText(f.path.slice(0, 500))}</span>{" "}
            {f.op !== "+" && <del>{value(f.old, hidden)}</del>}
            {f.op === "~" && " → "}
            {f.op !== "-" && <ins>{value(f.new, hidden)}</ins>}
          </li>
        );
      })}
      {(fields?.length ?? 0) > most && <li class="quiet">… {fields!.length - most} more fields</li>}
    </ul>
  );
}

export function writers(c: Change): string {
  return [...new Set((c.writers ?? []).map((w) => (w.manager || "unknown") + (w.subresource ? " (" + w.subresource + ")" : "")))].join(", ");
}

// what says what happened to the object.
export const what = (c: Change): string => ({ ADDED: "created", MODIFIED: "changed", DELETED: "deleted" })[c.type] ?? c.type;

export const toneOf = (c: Change): string => (c.type === "DELETED" ? "bad" : c.type === "ADDED" ? "good" : "");

// gapText says what is not known of a time.
export const gapText = (g: Gap): string => `${g.late ? "changes were recorded after it, none is missing" : "changes may be missing"}, ${visibleText(g.reason)}`;

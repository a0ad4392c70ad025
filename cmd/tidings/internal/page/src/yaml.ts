// YAML of an object, with its fields in the order in which the server sent them.

import { Exact } from "./exact";

const plain = /^[A-Za-z_/.][\w./ -]*[\w./-]$|^[A-Za-z_/]$/;
const special = /^(true|false|yes|no|on|off|null|y|n|~|\.inf|\.nan)$/i;

function scalar(v: unknown): string {
  if (v === null) return "null";
  if (typeof v !== "string") return String(v);
  return plain.test(v) && !special.test(v) ? v : JSON.stringify(v);
}

export function yaml(v: unknown, indent = ""): string[] {
  const out: string[] = [];
  const block = (head: string, value: unknown, deeper: string) => {
    if (Array.isArray(value) ? value.length > 0 : value && typeof value === "object" && Object.keys(value).length > 0) {
      out.push(head, ...yaml(value, Array.isArray(value) ? indent : deeper));
    } else if (typeof value === "string" && value.includes("\n") && !/[^\n\t\x20-\uffff]/.test(value) && !/^\s/.test(value)) {
      out.push(head + (value.endsWith("\n") ? " |" : " |-"));
      for (const line of value.replace(/\n$/, "").split("\n")) out.push(line && deeper + line);
    } else out.push(head + " " + (Array.isArray(value) ? "[]" : value && typeof value === "object" && !(value instanceof Exact) ? "{}" : scalar(value)));
  };
  if (Array.isArray(v)) {
    for (const item of v) {
      if (item && typeof item === "object" && Object.keys(item).length > 0) {
        const lines = yaml(item, indent + "  ");
        lines[0] = indent + "- " + lines[0].slice(indent.length + 2);
        out.push(...lines);
      } else block(indent + "-", item, indent + "  ");
    }
    return out;
  }
  for (const [key, value] of Object.entries(v as object)) block(indent + scalar(key) + ":", value, indent + "  ");
  return out;
}

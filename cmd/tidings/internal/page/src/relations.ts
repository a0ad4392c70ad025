// The tree of the open object, kept up to date while somebody looks.
import { signal } from "@preact/signals";
import { query } from "./query";
import type { Moment } from "./rows";
import { getJSON, Problem } from "./stream";
import { objectPath, subject } from "./subject";

export interface Finding { message: string; field: string }
export interface Ref { apiVersion: string; kind: string; namespace?: string; name: string }
export interface Node extends Ref {
  hops: number; state?: string; created?: string; wrong?: Finding[]; unknown?: Finding[]; children?: Node[]; hidden?: number; leftOut?: number;
  missing?: boolean; links?: { from: string; relation: string; to: string; field: string }[]; moreLinks?: number; // of a neighbour
}
interface Tree {
  owners?: Node[]; hiddenOwners?: number; object: Node; cause?: (Ref & Finding)[];
  neighbours?: { objects: Node[]; hidden?: number; leftOut?: number };
  notLookedAt?: { resource: string; why: string }[];
}
interface State { tree?: Tree; moment?: Moment; problem?: Error }

export const relations = signal<State>({});

// A line of the view is an object, or a remark about those that are left out.
export interface Line { depth: number; node?: Node; remark?: string }

const count = (n: number, what: string) => `${n} ${what}${n === 1 ? "" : "s"}`;

function below(node: Node, depth: number): Line[] {
  const left = [node.hidden ? `… ${count(node.hidden, "object")} that you may not see` : "", node.leftOut ? `… ${node.leftOut} more` : ""].filter(Boolean).join(", ");
  return [{ depth, node }, ...(node.children ?? []).flatMap((c) => below(c, depth + 1)), ...(left ? [{ depth: depth + 1, remark: left }] : [])];
}

// family are the lines of the owners, the object and what it owns.
export function family({ owners = [], hiddenOwners, object }: Tree): Line[] {
  const top = owners[0]?.hops ?? 0;
  return [
    ...owners.map((node) => ({ depth: node.hops - top, node })),
    ...(hiddenOwners ? [{ depth: -top, remark: `… ${count(hiddenOwners, "owner")} above that you may not see` }] : []),
    ...below(object, -top),
  ];
}

// neighbourhood are the lines of the neighbours.
export function neighbourhood({ neighbours }: Tree): Line[] {
  const { objects = [], hidden, leftOut } = neighbours ?? {};
  return [
    ...objects.map((node) => ({ depth: 0, node })),
    ...(hidden ? [{ depth: 0, remark: `… ${count(hidden, "object")} that you may not see` }] : []),
    ...(leftOut ? [{ depth: 0, remark: `… ${leftOut} more` }] : []),
  ];
}

const often = 1000; // the server is not asked more often than that
const every = 2000; // nor less often: what belongs to the object changes, too

// followRelations shows the tree until the signal. A tree of the past does not change.
export function followRelations(signal: AbortSignal): void {
  const { object, at } = query.value;
  const path = objectPath(object) + "?" + new URLSearchParams({ tree: "true", neighbours: "true", ...(at && { at }) });
  let [asked, busy, changed, version, timer] = [0, false, false, "", 0];
  const look = async () => {
    [asked, busy, changed] = [Date.now(), true, false];
    try {
      const { data, moment } = await getJSON<{ data: Tree; moment?: Moment }>(path, signal);
      relations.value = { tree: data, moment };
    } catch (e) {
      if (signal.aborted) return;
      relations.value = { ...relations.value, problem: e as Error };
      if (e instanceof Problem && e.final) return;
    }
    busy = false;
    if (!signal.aborted && !at) next();
  };
  const next = () => {
    clearTimeout(timer);
    timer = setTimeout(look, Math.max(0, asked + (changed ? often : every) - Date.now()));
  };
  void look();
  const stop = subject.subscribe(({ object }) => {
    const now = String(object?.metadata?.resourceVersion ?? "");
    changed ||= version !== "" && now !== version;
    version = now;
    if (changed && !busy && !at && timer) next();
  });
  signal.addEventListener("abort", () => (stop(), clearTimeout(timer)), { once: true });
}

// The tree of the open object, kept up to date while somebody looks.
import { computed, signal } from "@preact/signals";
import { query } from "./query";
import type { Moment } from "./rows";
import { getJSON, Problem } from "./stream";
import { listPath, objectPath, subject } from "./subject";

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

const looked = signal<State & { at: string }>({ at: "" }); // the tree that was read last

// place is the object and the moment that are open.
export const place = computed(() => [listPath.value, query.value.object, query.value.at].join(" "));

// relations is the tree of the place, and empty until it is read.
export const relations = computed<State>(() => (looked.value.at === place.value ? looked.value : {}));

// A line of the view is an object, or a remark about those that are left out.
export interface Line { depth: number; node?: Node; remark?: string }

// same reports whether two lines, maybe of two readings, are of one object.
export function same(a: Line, b: Line): boolean {
  const [x, y] = [a.node, b.node];
  return !!x && !!y && x.apiVersion === y.apiVersion && x.kind === y.kind && x.namespace === y.namespace && x.name === y.name;
}

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
  const here = place.value;
  const path = objectPath(object) + "?" + new URLSearchParams({ tree: "true", neighbours: "true", ...(at && { at }) });
  let [asked, busy, changed, version, timer] = [0, false, false, "", 0];
  const look = async () => {
    [asked, busy, changed] = [Date.now(), true, false];
    try {
      const { data, moment } = await getJSON<{ data: Tree; moment?: Moment }>(path, signal);
      looked.value = { at: here, tree: data, moment };
    } catch (e) {
      if (signal.aborted) return;
      looked.value = { ...(looked.value.at === here && looked.value), at: here, problem: e as Error };
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

// The open object: its newest state, and what of it may be shown.
import { computed, signal } from "@preact/signals";
import { parse } from "./exact";
import { base, go, query, quote, tidings } from "./query";
import type { Moment } from "./rows";
import { follow, getJSON, Problem, token } from "./stream";

// Subject is an object as it was known at a time. With a moment it is as it was then.
export interface Subject { object: any; gone: boolean; at: number; moment?: Moment; problem?: Error }
const none: Subject = { object: null, gone: false, at: 0 };

// subject is the open object as it is now, or was last.
export const subject = signal<Subject>(none);

// listPath is the path of the resource.
export const listPath = computed(() => base.value + "/" + encodeURIComponent(query.value.resource));

// split gives the namespace, "" if there is none, and the name of a key.
export function split(key: string): [string, string] {
  const slash = key.indexOf("/");
  return slash < 0 ? ["", key] : [key.slice(0, slash), key.slice(slash + 1)];
}

// objectPath is the path of an object of the resource that is shown. The API version is
// that of the open object.
export function objectPath(key: string): string {
  const version = String(subject.value.object?.apiVersion ?? "v1");
  const parts = [version.includes("/") ? version : "core/" + version, query.value.resource.split(".")[0], ...split(key).filter(Boolean)];
  return base.value + "/" + parts.flatMap((p, i) => (i ? [p] : p.split("/"))).map(encodeURIComponent).join("/");
}

// ownCommand is the command that shows about the same without kubectl.
export function ownCommand(): string {
  const { view, object, with: other, from: named, at, to } = query.value;
  const from = named || at;
  if (view !== "compare" || !other) return tidings(query.value);
  const p = new URLSearchParams({ diff: "true", with: other, ...(from && { from }), ...(to && { to }) }); // the command line compares moments alone
  return "curl " + quote(`${location.origin}${objectPath(object)}?${p}`);
}

// mask hides what a Secret has, so that it can be looked at with others in the room.
export function mask(object: any): any {
  if (object?.kind !== "Secret") return object;
  const hide = (data: object | undefined) => data && Object.fromEntries(Object.keys(data).map((k) => [k, "••••••"]));
  const { "kubectl.kubernetes.io/last-applied-configuration": _, ...annotations } = object.metadata.annotations ?? {};
  const copy = { ...object, metadata: { ...object.metadata, annotations }, data: hide(object.data), stringData: hide(object.stringData) };
  return parse(JSON.stringify(copy)); // without what is undefined
}

// selected are the parameters that select one object of a list.
export function selected(key: string): Record<string, string> {
  const [namespace, name] = split(key);
  return { ...(namespace && { namespace }), fieldSelector: "metadata.name=" + name };
}

const pause = (ms: number, signal: AbortSignal) =>
  new Promise<void>((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });

// repeat follows a stream until the signal, and again when it ends.
export async function repeat(path: string, signal: AbortSignal, each: (event: string, data: any) => void, failed: (problem: Error) => void): Promise<void> {
  for (let tries = 0; !signal.aborted; tries++) {
    try {
      await follow(path, signal, (event, data) => {
        tries = 0;
        if (!signal.aborted) each(event, data);
      });
    } catch (e) {
      if (signal.aborted) return;
      failed(e as Error);
      if (e instanceof Problem && e.final) return;
      await pause(Math.min(5000, 250 * 2 ** tries), signal);
    }
  }
}

// followSubject follows the object of a key until the signal.
export function followSubject(path: string, key: string, signal: AbortSignal): void {
  void token.value; // with another token, it is another stream
  subject.value = none;
  let exists = false; // as far as the stream has said
  void repeat(
    path + "?" + new URLSearchParams({ watch: "true", ...selected(key) }),
    signal,
    (_, e) => {
      if (e.type !== "SYNCED") exists = e.type === "ADDED" || e.type === "MODIFIED";
      if (e.type === "ADDED" || e.type === "MODIFIED") subject.value = { object: mask(e.object), gone: false, at: Date.now() };
      else if (e.type === "DELETED") subject.value = { ...subject.value, gone: true, at: Date.now() };
      else if (e.type === "SYNCED") subject.value = { ...subject.value, gone: !exists, at: Date.now(), problem: undefined };
    },
    (problem) => {
      exists = false; // the next stream begins anew, and does not say what was deleted meanwhile
      // The owner of an object in a namespace may be in none.
      if (problem instanceof Problem && problem.status === 400 && key.includes("/") && /not namespaced/.test(problem.message)) go({ object: split(key)[1], namespace: "" }, true);
      else subject.value = { ...subject.value, problem };
    },
  );
}

// showSubject shows the object as it was at a moment.
export async function showSubject(path: string, key: string, at: string, signal: AbortSignal): Promise<void> {
  subject.value = none;
  try {
    const { data, moment } = await getJSON<{ data: any[]; moment: Moment }>(path + "?" + new URLSearchParams({ ...selected(key), at }));
    if (!signal.aborted) subject.value = { object: mask(data[0]) ?? null, gone: !data.length, at: Date.now(), moment };
  } catch (problem) {
    if (!signal.aborted) subject.value = { ...none, problem: problem as Error };
  }
}

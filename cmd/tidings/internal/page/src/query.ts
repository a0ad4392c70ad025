// The query of a view: what is shown, and how. It is in the fragment of the URL, so that
// a view can be shared and gone back to, and the names in it reach no server log.
import { computed, signal } from "@preact/signals";

export interface Query {
  resource: string;
  cluster: string; // "": the default one
  namespace: string; // "": all that the caller may read
  labels: string;
  fields: string;
  filter: string;
  sort: string; // "": by namespace and name
  descending: boolean;
  wide: boolean;
  object: string; // the key of the open object
  view: View; // of the object
  version: string; // the resourceVersion at which the object is shown as YAML; "": now
  from: string; // what is compared: the object at a moment,
  with: string; // with it or another one of the resource
  to: string; // at another moment
}

export type View = "" | "yaml" | "timeline" | "compare";

export const none: Query = { resource: "pods", cluster: "", namespace: "", labels: "", fields: "", filter: "", sort: "", descending: false, wide: false, object: "",
  view: "", version: "", from: "", with: "", to: "" };

function fromFragment(fragment: string): Query {
  const [path, params] = fragment.replace(/^#\/?/, "").split("?", 2);
  const p = new URLSearchParams(params ?? "");
  const text = (name: string) => p.get(name) ?? "";
  let resource = none.resource;
  try {
    resource = decodeURIComponent(path) || none.resource;
  } catch {
    // not escaped correctly: the default
  }
  return {
    resource, cluster: text("cluster"), namespace: text("namespace"), labels: text("labels"), fields: text("fields"), filter: text("filter"),
    sort: text("sort"), descending: p.has("descending"), wide: p.has("wide"), object: text("object"),
    view: (["yaml", "timeline", "compare"] as const).find((v) => v === text("view")) ?? "", version: text("version"), from: text("from"), with: text("with"), to: text("to"),
  };
}

function toFragment(q: Query): string {
  const p = new URLSearchParams();
  for (const name of ["cluster", "namespace", "labels", "fields", "filter", "sort", "object", "view", "version", "from", "with", "to"] as const) {
    if (q[name]) p.set(name, q[name]);
  }
  for (const name of ["descending", "wide"] as const) {
    if (q[name]) p.set(name, "");
  }
  const params = p.toString().replace(/=(?=&|$)/g, "");
  return "#/" + encodeURIComponent(q.resource) + (params && "?" + params);
}

export const query = signal(fromFragment(location.hash));

addEventListener("popstate", () => (query.value = fromFragment(location.hash)));
addEventListener("hashchange", () => (query.value = fromFragment(location.hash)));

// go changes the query. Small changes replace the entry of the history.
export function go(change: Partial<Query>, small = false): void {
  const another = change.object !== undefined && change.object !== query.value.object;
  const next = { ...query.value, ...(another && { version: "", from: "", with: "", to: "" }), ...change };
  query.value = next;
  history[small ? "replaceState" : "pushState"](null, "", toFragment(next));
}

// base is the path of the cluster that is shown.
export const base = computed(() => (query.value.cluster ? "/clusters/" + encodeURIComponent(query.value.cluster) : ""));

// parse reads what was typed at the prompt, such as "pods app=web /shop @prod". What is
// not named keeps nothing of the query before.
export function parse(typed: string): Partial<Query> | string {
  const words = typed.replace(/^\s*:/, "").match(/(?:\([^)]*\)|[^\s(])+|\S/g) ?? [];
  const [resource, ...rest] = words;
  if (!resource) return "name a resource, such as pods";
  if (!/^[\w.-]+$/.test(resource)) return `${resource} is not the name of a resource: begin with one, such as pods`;
  const q = { ...none, resource, cluster: query.value.cluster };
  const labels: string[] = [];
  const fields: string[] = [];
  for (let i = 0; i < rest.length; i++) {
    const word = rest[i];
    if (rest[i + 1] === "in" || rest[i + 1] === "notin") {
      labels.push(rest.slice(i, i + 3).join(" "));
      i += 2;
    } else if (/^(not)?in\(/.test(rest[i + 1] ?? "")) {
      labels.push(word + " " + rest[++i]);
    } else if (word.startsWith("/")) q.namespace = word === "/*" ? "" : word.slice(1);
    else if (word.startsWith("@")) q.cluster = word.slice(1);
    else if (word.startsWith(".")) fields.push(word.slice(1));
    else labels.push(word);
  }
  q.labels = labels.join(",");
  q.fields = fields.join(",");
  return q;
}

// print is the opposite of parse.
export function print(q: Query): string {
  const words = [q.resource];
  if (q.labels) words.push(...q.labels.split(/,(?![^(]*\))/));
  if (q.fields) words.push(...q.fields.split(",").map((f) => "." + f));
  if (q.namespace) words.push("/" + q.namespace);
  if (q.cluster) words.push("@" + q.cluster);
  return words.join(" ");
}

// command is the kubectl command that shows about the same.
export function command(q: Query): string {
  if (q.resource === "pipeline") return tidings(q); // kubectl knows nothing of it
  const words = [q.object && q.view === "" ? "kubectl describe" : "kubectl get", quote(q.resource)];
  if (q.object) {
    words.push(...objectWords(q));
    if (q.view !== "") words.push("-o yaml");
  } else {
    words.push(q.namespace ? "-n " + quote(q.namespace) : "-A");
    if (q.labels) words.push("-l", quote(q.labels));
    if (q.fields) words.push("--field-selector", quote(q.fields));
    if (q.wide) words.push("-o wide");
  }
  if (q.cluster) words.push("--context", quote(q.cluster));
  return words.join(" ");
}

// quote makes a word of a shell of a text.
export const quote = (s: string) => (/^[\w.,=/:-]+$/.test(s) ? s : "'" + s.replaceAll("'", "'\\''") + "'");

function objectWords(q: Query): string[] {
  const parts = q.object.split("/");
  return [quote(parts[parts.length - 1]), ...(parts.length > 1 ? ["-n", quote(parts[0])] : [])];
}

// tidings is the command of tidings that shows about the same of an object.
export function tidings(q: Query): string {
  if (q.resource === "pipeline") return "curl " + location.origin + "/clusters";
  const words = ["tidings", { "": "get", yaml: "get", timeline: "history", compare: "diff" }[q.view], quote(q.resource), ...(q.object ? objectWords(q) : q.namespace ? ["-n", quote(q.namespace)] : ["-A"])];
  if (q.view === "compare") words.push("--from", quote(q.from || "-1h"), ...(q.to ? ["--to", quote(q.to)] : []));
  if (q.view === "yaml") words.push("-o yaml", ...(q.version ? ["--at", quote(q.version)] : []));
  words.push("--server", location.origin);
  if (q.cluster) words.push("--context", quote(q.cluster));
  return words.join(" ");
}

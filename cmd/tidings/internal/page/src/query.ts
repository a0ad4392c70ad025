// The query of a view: what is shown, and how. It is in the fragment of the URL, so that
// a view can be shared and gone back to, and the names in it reach no server log.
import { computed, signal } from "@preact/signals";

export interface Query {
  resource: string;
  cluster: string; // "": the default one; several are separated by commas, and * stands for any text
  namespace: string; // "": all that the caller may read; several are separated by commas
  labels: string;
  fields: string;
  filter: string;
  sort: string; // "": by namespace and name
  descending: boolean;
  wide: boolean;
  columns: string; // paths of fields that are further columns, separated by commas
  object: string; // the key of the open object
  view: View; // of the object
  version: string; // the resourceVersion at which the object is shown as YAML; "": now
  from: string; // what is compared: the object at a moment,
  with: string; // with it or another one of the resource
  to: string; // at another moment
  of: string; // the cluster of the open object, if the table has several
  at: string; // the moment that is shown, in ISO 8601; "": the present
  around: string; // show the changes of so many minutes before and after instead of the table
}

export type View = "" | "yaml" | "tree" | "timeline" | "compare";

export const none: Query = { resource: "pods", cluster: "", namespace: "", labels: "", fields: "", filter: "", sort: "", descending: false, wide: false, columns: "", object: "", view: "", version: "", from: "", with: "", to: "", of: "", at: "", around: "" };
const texts = ["cluster", "namespace", "labels", "fields", "filter", "sort", "columns", "object", "version", "from", "with", "to", "of", "at", "around"] as const;

// momentOf reads a moment, such as -15m or a time, as ISO 8601.
function momentOf(text: string): string | undefined {
  const ago = /^-(\d+(?:\.\d+)?)(s|m|h|d)$/.exec(text);
  if (ago) return new Date(Date.now() - +ago[1] * { s: 1, m: 60, h: 3600, d: 86400 }[ago[2] as "s"]! * 1000).toISOString();
  if (!/^\d{4}-\d\d-\d\dT/.test(text)) return undefined;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : new Date(at).toISOString();
}

function fromFragment(fragment: string): Query {
  const [path, params] = fragment.replace(/^#\/?/, "").split("?", 2);
  const p = new URLSearchParams(params ?? "");
  let resource = none.resource;
  try {
    resource = decodeURIComponent(path) || none.resource;
  } catch {
    // not escaped correctly: the default
  }
  const q: Query = { ...none, resource, descending: p.has("descending"), wide: p.has("wide") };
  for (const name of texts) q[name] = p.get(name) ?? "";
  q.view = (["yaml", "tree", "timeline", "compare"] as const).find((v) => v === p.get("view")) ?? "";
  q.at = momentOf(q.at) ?? "";
  if (!/^\d{1,4}$/.test(q.around)) q.around = "";
  return q;
}

function toFragment(q: Query): string {
  const p = new URLSearchParams();
  for (const name of [...texts, "view"] as const) {
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

// several reports whether a table has several clusters.
export const several = (q: Query): boolean => /[,*]/.test(q.cluster);

// clusterOf is the cluster that is shown, or that of the open object if there are several.
export const clusterOf = (q: Query): string => (several(q) ? (q.object ? q.of : "") : q.cluster);

// base is the path of that cluster.
export const base = computed(() => (clusterOf(query.value) ? "/clusters/" + encodeURIComponent(clusterOf(query.value)) : ""));

// table is the path of the table of a resource, and the parameters that say where.
export function table(resource: string): { path: string; params: URLSearchParams } {
  const q = query.value;
  const params = new URLSearchParams({ window: "true" });
  if (several(q)) params.set("clusters", q.cluster);
  const of = q.cluster && !several(q) ? "/clusters/" + encodeURIComponent(q.cluster) : "";
  return { path: of + "/" + encodeURIComponent(resource), params };
}

// parse reads what was typed at the prompt, such as "pods app=web /shop @prod". What is
// not named keeps nothing of the query before.
export function parse(typed: string): Partial<Query> | string {
  const words = typed.replace(/^\s*:/, "").match(/(?:\[[^\]]*\]|\([^)]*\)|[^\s([])+|\S/g) ?? [];
  const [resource, ...rest] = words;
  if (!resource) return "name a resource, such as pods";
  if (!/^[\w.-]+$/.test(resource)) return `${resource} is not the name of a resource: begin with one, such as pods`;
  const q = { ...none, resource, cluster: query.value.cluster };
  const labels: string[] = [];
  const fields: string[] = [];
  const [columns, namespaces, clusters]: string[][] = [[], [], []];
  for (let i = 0; i < rest.length; i++) {
    const word = rest[i];
    if (rest[i + 1] === "in" || rest[i + 1] === "notin") {
      labels.push(rest.slice(i, i + 3).join(" "));
      i += 2;
    } else if (/^(not)?in\(/.test(rest[i + 1] ?? "")) {
      labels.push(word + " " + rest[++i]);
    } else if (word === "now") q.at = "";
    else if (momentOf(word)) q.at = momentOf(word)!;
    else if (word.startsWith("/")) namespaces.push(word.slice(1));
    else if (word.startsWith("@")) clusters.push(word.slice(1));
    else if (word.startsWith("+")) columns.push(word.slice(1));
    else if (word.startsWith(".")) fields.push(word.slice(1));
    else labels.push(word);
  }
  const wrong = columns.find((c) => !/^[.[]/.test(c));
  if (wrong !== undefined) return `${wrong} is not the path of a field: a column begins with +. as in +.spec.nodeName`;
  q.columns = columns.join(",");
  q.namespace = namespaces.includes("*") ? "" : namespaces.join(",");
  if (clusters.length > 0) q.cluster = clusters.join(",");
  q.labels = labels.join(",");
  q.fields = fields.join(",");
  return q;
}

// print is the opposite of parse.
export function print(q: Query): string {
  const words = [q.resource];
  if (q.labels) words.push(...q.labels.split(/,(?![^(]*\))/));
  if (q.fields) words.push(...q.fields.split(",").map((f) => "." + f));
  if (q.columns) words.push(...q.columns.split(",").map((c) => "+" + c));
  if (q.namespace) words.push("/" + q.namespace);
  if (q.cluster) words.push("@" + q.cluster);
  if (q.at) words.push(q.at);
  return words.join(" ");
}

// command is the kubectl command that shows about the same.
export function command(q: Query): string {
  if (q.resource === "pipeline") return tidings(q); // kubectl knows nothing of it
  const cluster = clusterOf(q);
  const words = [q.at || (several(q) && !q.object) ? "tidings get" : q.object && q.view === "" && !q.at ? "kubectl describe" : "kubectl get", quote(q.resource)];
  if (q.object) {
    words.push(...objectWords(q));
    if (q.view !== "" || q.at) words.push("-o yaml");
  } else {
    words.push(q.namespace && !q.namespace.includes(",") ? "-n " + quote(q.namespace) : "-A");
    if (q.labels) words.push("-l", quote(q.labels));
    if (q.fields) words.push("--field-selector", quote(q.fields));
    if (q.wide) words.push("-o wide");
  }
  if (q.at) words.push("--at", q.at, "--server", location.origin);
  if (cluster) words.push("--context", quote(cluster));
  else if (several(q)) words.push(...q.cluster.split(",").map((c) => "--context " + quote(c)));
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
  const words = ["tidings", { "": "get", yaml: "get", tree: "tree", timeline: "history", compare: "diff" }[q.view], quote(q.resource), ...(q.object ? objectWords(q) : q.namespace ? ["-n", quote(q.namespace)] : ["-A"])];
  if (q.view === "compare") words.push("--from", quote(q.from || q.at || "-1h"), ...(q.to ? ["--to", quote(q.to)] : []));
  if (q.view === "yaml") words.push("-o yaml", ...(q.version ? ["--at", quote(q.version)] : []));
  if (q.view === "tree") words.push("--neighbours");
  if (q.at && q.view !== "timeline" && q.view !== "compare" && !q.version) words.push("--at", q.at);
  words.push("--server", location.origin);
  const cluster = clusterOf(q);
  if (cluster) words.push("--context", quote(cluster));
  return words.join(" ");
}

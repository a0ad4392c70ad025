import { computed, signal } from "@preact/signals";
import { visibleText } from "./format";
import { panel } from "./keys";
import { go, parse, print, query, several, table } from "./query";
import { follow, getJSON } from "./stream";

const resources = signal<string[]>([]);
const clusters = signal<string[]>([]);
const namespaces = signal<string[]>([]);
const typed = signal("");
const complaint = signal("");

// learn asks what there is to complete. What may not be read is not completed.
function learn(): void {
  void getJSON<{ clusters: string[] | null; default: string }>("/").then(async (index) => {
    clusters.value = index.clusters ?? [];
    const name = (!several(query.value) && query.value.cluster) || index.default || clusters.value[0];
    if (!name) return;
    const { data } = await getJSON<{ data: { available?: string[] } }>("/clusters/" + encodeURIComponent(name));
    // deployments.v1.apps is known as deployments, unless there are others of that name.
    const all = (data.available ?? []).map((full) => full.split("."));
    const times = new Map<string, number>();
    for (const [plural] of all) times.set(plural, (times.get(plural) ?? 0) + 1);
    resources.value = [...new Set(all.map(([plural, , ...group]) => (times.get(plural)! > 1 && group.length ? [plural, ...group].join(".") : plural))), "pipeline"].sort();
  }).catch(() => undefined);
  const enough = new AbortController();
  const { path, params } = table("namespaces");
  follow(`${path}?${params}&count=500&columns=Name`, enough.signal, (_, frame) => {
    const names = frame.keys?.map((key: string) => key.slice(key.indexOf("/") + 1)); // after the cluster
    if (names) namespaces.value = [...new Set<string>(names)];
    if (frame.synced) enough.abort(); // before, it may have none of them
  }).catch(() => undefined);
}

const suggestions = computed(() => {
  const word = typed.value.split(" ").pop()!;
  const first = !typed.value.trimStart().includes(" ");
  const all = first ? resources.value : word.startsWith("/") ? namespaces.value : word.startsWith("@") ? clusters.value : [];
  const sign = first ? "" : word.slice(0, Math.max(1, word.lastIndexOf(",") + 1)); // and the names before the last one
  const begun = word.slice(sign.length).toLowerCase();
  const found = all.filter((name) => name.toLowerCase().startsWith(begun)).sort((a, b) => a.length - b.length);
  const within = begun.length > 1 ? all.filter((name) => name.toLowerCase().includes(begun) && !found.includes(name)) : [];
  return [...found, ...within].slice(0, 8).map((name) => sign + name);
});

function complete(suggestion: string): void {
  typed.value = [...typed.value.split(" ").slice(0, -1), suggestion].join(" ") + " ";
}

export function openPrompt(): void {
  typed.value = print(query.value);
  complaint.value = "";
  learn();
}

export function Prompt() {
  return (
    <form
      class="prompt"
      hidden={panel.value !== "prompt"}
      onSubmit={(e) => {
        e.preventDefault();
        const next = parse(typed.value);
        if (typeof next === "string") complaint.value = next;
        else {
          panel.value = "";
          (document.activeElement as HTMLElement | null)?.blur();
          go(next);
        }
      }}
    >
      <label>
        <span>:</span>
        <input
          aria-label="what to show"
          spellcheck={false}
          autocomplete="off"
          autocapitalize="off"
          value={typed.value}
          onInput={(e) => {
            typed.value = e.currentTarget.value;
            complaint.value = "";
          }}
          onKeyDown={(e) => {
            if (e.key === "Tab" && suggestions.value.length > 0) {
              e.preventDefault();
              complete(suggestions.value[0]);
            }
          }}
        />
      </label>
      {complaint.value && <p class="bad" role="alert">{visibleText(complaint.value)}</p>}
      <ul>
        {suggestions.value.map((s) => (
          <li key={s}>
            <button type="button" tabIndex={-1} onClick={() => complete(s)}>{visibleText(s)}</button>
          </li>
        ))}
        {suggestions.value.length === 0 && <li class="hint">app=web labels · .spec.nodeName=n1 fields · +.spec.nodeName column · /namespace,… · @cluster,… or @* · Enter</li>}
      </ul>
    </form>
  );
}

export function Filter() {
  return (
    <label class="filter">
      <span>/</span>
      <input
        aria-label="filter"
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        maxLength={200}
        value={query.value.filter}
        onInput={(e) => go({ filter: e.currentTarget.value }, true)}
        onKeyDown={(e) => {
          if (e.key === "Enter") {
            e.preventDefault();
            e.stopPropagation();
            panel.value = "";
            e.currentTarget.blur();
          }
        }}
        onFocus={() => (panel.value = "filter")}
        onBlur={() => panel.value === "filter" && (panel.value = "")}
      />
    </label>
  );
}


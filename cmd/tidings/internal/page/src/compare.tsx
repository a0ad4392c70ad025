// What differs between two versions of the open object, or between it and another one.
// The server makes the difference.
import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { Fields } from "./difference";
import { date, visibleText } from "./format";
import type { Field, Gap } from "./history";
import { go, query } from "./query";
import { rows } from "./rows";
import { Failed } from "./object";
import { getJSON } from "./stream";
import { objectPath, subject } from "./subject";

interface Side { namespace?: string; name: string; resourceVersion: string; moment?: { time: string; gap?: Gap } }
interface Difference { data: Field[]; from: Side; to: Side }
const result = signal<{ of?: string; difference?: Difference; problem?: Error }>({});

function About({ side }: { side: Side }) {
  return (
    <>
      <b>{visibleText((side.namespace ? side.namespace + "/" : "") + side.name)}</b> {side.moment ? `at ${date(side.moment.time)}` : "now"}, version {side.resourceVersion}
      {side.moment?.gap && <span class="wait"> (in a gap: {visibleText(side.moment.gap.reason)})</span>}
    </>
  );
}

const inputs = [
  ["from", "at", "now, or -15m, a time, a version"],
  ["with", "with", "itself, or namespace/name"],
  ["to", "at", "now"],
] as const;

export function Compare() {
  const { object, with: other, to, resource, cluster, at } = query.value;
  const from = query.value.from || at; // what has changed since the moment that is shown
  const values = { from, with: other, to };
  const ready = subject.value.at > 0;
  const version = subject.value.object?.metadata?.resourceVersion;
  const kind = String(subject.value.object?.kind ?? "");
  const asked = Boolean(from || other || to);
  useLayoutEffect(() => { // before something is drawn: not what another object has
    const stop = new AbortController();
    const of = [object, resource, cluster].join(" ");
    if (!asked || result.value.of !== of) result.value = {};
    if (asked && ready) {
      const p = new URLSearchParams({ diff: "true" });
      for (const [name, value] of [["from", from], ["with", other], ["to", to]]) if (value) p.set(name, value);
      const timer = setTimeout(() => {
        getJSON<Difference>(objectPath(object) + "?" + p, stop.signal)
          .then((difference) => (result.value = { of, difference }))
          .catch((problem) => !stop.signal.aborted && (result.value = { of, problem }));
      }, 150); // an object that changes all the time is not compared all the time
      stop.signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
    }
    return () => stop.abort();
  }, [object, resource, cluster, from, other, to, ready, version]);
  const { difference, problem } = result.value;
  return (
    <div class="scroll" role="region" tabIndex={0} aria-label="comparison">
      <form
        class="sides"
        onSubmit={(e) => {
          e.preventDefault();
          const form = e.currentTarget as HTMLFormElement;
          const [from, other, to] = inputs.map(([name]) => (form.elements.namedItem(name) as HTMLInputElement).value.trim());
          (document.activeElement as HTMLElement | null)?.blur();
          go({ from, with: other, to });
        }}
      >
        <span>This object</span>
        {inputs.map(([name, label, hint]) => (
          <label key={name}>
            {label}
            {/* A default, and a key: what is being typed outlives that the object is drawn anew, and a new URL replaces it. */}
            <input key={values[name]} defaultValue={values[name]} name={name} aria-label={name} placeholder={hint} spellcheck={false} autocomplete="off" autocapitalize="off" list={name === "with" ? "others" : undefined} />
          </label>
        ))}
        <datalist id="others">{rows.value.slice(0, 100).map((r) => <option key={r.key} value={r.key} />)}</datalist>
        <button type="submit">Compare</button>
      </form>
      {!asked && <p class="quiet">Name a moment, as in -15m, or another object of the same resource. In the timeline, mark two versions with x.</p>}
      {problem && <Failed problem={problem} />}
      {difference && asked && !problem && (
        <>
          <p><del><About side={difference.from} /></del><br /><ins><About side={difference.to} /></ins></p>
          {difference.data.length ? <Fields fields={difference.data} secret={kind === "Secret"} /> : <p class="quiet">Nothing differs.</p>}
        </>
      )}
    </div>
  );
}

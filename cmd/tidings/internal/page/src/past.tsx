import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { visibleText } from "./format";
import { lines } from "./object";
import { base, go, query } from "./query";
import { getJSON } from "./stream";

const shown = signal<{ lines: string[]; problem?: Error }>({ lines: [] });

// PastObject shows an object as it was at the view's moment.
export function PastObject() {
  const { resource, object, at } = query.value;
  const parts = object.split("/");
  const p = new URLSearchParams({ fieldSelector: "metadata.name=" + parts[parts.length - 1], at });
  if (parts.length > 1) p.set("namespace", parts[0]);
  const path = base.value + "/" + encodeURIComponent(resource) + "?" + p;
  useEffect(() => {
    let left = false;
    shown.value = { lines: [] };
    void getJSON<{ data: any[] }>(path).then(
      ({ data }) => left || (shown.value = { lines: data.length ? lines(data[0]) : ["# It did not exist."] }),
      (problem) => left || (shown.value = { lines: [], problem }),
    );
    return () => { left = true; };
  }, [path]);
  const { lines: all, problem } = shown.value;
  return (
    <section class="object" aria-label={object}>
      <header>
        <h2>{visibleText(object)}</h2>
        <button type="button" onClick={() => go({ object: "" })} aria-label="close">Esc</button>
      </header>
      <p class="wait">As it was at {new Date(at).toLocaleString(undefined, { hour12: false })}.</p>
      {problem && <p class="bad" role="alert">{visibleText(problem.message)}</p>}
      <pre tabIndex={0}>{all.map((l, i) => <div key={i}>{visibleText(l) || " "}</div>)}</pre>
    </section>
  );
}

// The open object, beside the table: at a glance, as YAML, its timeline, or what differs.
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { Compare } from "./compare";
import { age, visibleText } from "./format";
import { Glance } from "./glance";
import { Manifest } from "./manifest";
import { command, go, query, type View } from "./query";
import { inSight, now } from "./rows";
import { Problem, token } from "./stream";
import { followSubject, listPath, ownCommand, showSubject, split, subject } from "./subject";
import { Timeline } from "./timeline";

const views: [View, string, string][] = [
  ["", "At a glance", "d"],
  ["yaml", "YAML", "y"],
  ["timeline", "Timeline", "h"],
  ["compare", "Compare", "="],
];

export function ObjectView() {
  const { object, at: moment } = query.value;
  const view = query.value.view || (moment ? "yaml" : ""); // at a glance there is what only the present has
  const path = listPath.value;
  const seen = inSight.value;
  useEffect(() => {
    const stop = new AbortController();
    if (moment) void showSubject(path, object, moment, stop.signal);
    else if (seen) followSubject(path, object, stop.signal);
    return () => stop.abort();
  }, [path, object, moment, token.value, seen || moment !== ""]);
  const { object: content, gone, at, problem } = subject.value;
  const [namespace, name] = split(object);
  return (
    <section class={"object " + (view || "glance") + (problem || gone ? " stale" : "")} aria-label={object}>
      <header>
        <h2>
          {content?.kind && <small>{visibleText(String(content.kind))} </small>}
          {visibleText(name)}
          {namespace && <small> in {visibleText(namespace)}</small>}
        </h2>
        <button type="button" onClick={() => go({ object: "", view: "" })} aria-label="Esc: close">Esc</button>
      </header>
      <nav aria-label="views of the object">
        {views.map(([v, title, key]) => (
          <button key={v} type="button" aria-current={v === view ? "page" : undefined} onClick={() => go({ view: v })}>
            <kbd>{key}</kbd>{title}
          </button>
        ))}
      </nav>
      <p class="command"><code>{visibleText(view === "timeline" || view === "compare" ? ownCommand() : command(query.value))}</code></p>
      {moment && <p class="wait">As it was at {new Date(moment).toLocaleString(undefined, { hour12: false })}.</p>}
      {gone && <p class="bad" role="alert">{content ? "It was deleted. This was its last state." : moment ? "It did not exist." : "There is no such object."}</p>}
      {problem && <Failed problem={problem}>{at > 0 && `As of ${age((now.value - at) / 1000)} ago.`}</Failed>}
      {view === "timeline" ? <Timeline /> : view === "compare" ? <Compare /> : view === "yaml" ? <Manifest /> : content && <Glance object={content} />}
    </section>
  );
}

// Failed says why something could not be read. What is not permitted is never shown as
// none.
export function Failed({ problem, children }: { problem: Error; children?: ComponentChildren }) {
  const forbidden = problem instanceof Problem && (problem.status === 403 || problem.reason === "Forbidden");
  return (
    <p class="bad" role="alert">
      {forbidden && <b>Not permitted. </b>}
      {visibleText(problem.message)} {children}
    </p>
  );
}

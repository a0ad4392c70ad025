// The open object, beside the table: at a glance, as YAML, its timeline, or what differs.
import type { ComponentChildren } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { Compare } from "./compare";
import { age, date, visibleText } from "./format";
import { Glance } from "./glance";
import { Manifest } from "./manifest";
import { command, go, query, type View } from "./query";
import { inSight, type Moment, now } from "./rows";
import { Problem, token } from "./stream";
import { followSubject, listPath, ownCommand, showSubject, split, subject } from "./subject";
import { Timeline } from "./timeline";
import { Tree } from "./tree";

const views: [View, string, string][] = [
  ["", "At a glance", "d"],
  ["yaml", "YAML", "y"],
  ["tree", "Tree", "r"],
  ["timeline", "Timeline", "h"],
  ["compare", "Compare", "="],
];

export function ObjectView() {
  const { object, view, version, at: moment } = query.value;
  const path = listPath.value;
  const seen = inSight.value;
  useLayoutEffect(() => { // before something is drawn: not what another object has
    const stop = new AbortController();
    if (moment) void showSubject(path, object, moment, stop.signal);
    else if (seen) followSubject(path, object, stop.signal);
    return () => stop.abort();
  }, [path, object, moment, token.value, seen || moment !== ""]);
  const { object: content, gone, at, moment: past, problem } = subject.value;
  const [namespace, name] = split(object);
  return (
    <section class={"object " + (view || "glance") + (content && (problem || gone) ? " stale" : "")} aria-label={object}>
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
      <p class="command"><code>{visibleText(["timeline", "compare", "tree"].includes(view) ? ownCommand() : command(query.value))}</code></p>
      {moment && (view === "" || view === "tree" || (view === "yaml" && !version)) && (
        <p class="past" role="status">
          <b>Past.</b> As it was at {date(moment)}. <button type="button" onClick={() => go({ at: "" })}>Show it as it is now</button>
          <Unsure moment={past} />
        </p>
      )}
      {gone && <p class="bad" role="alert">{content ? "It was deleted. This was its last state." : moment ? "It did not exist." : "There is no such object."}</p>}
      {problem && <Failed problem={problem}>{at > 0 && `As of ${age((now.value - at) / 1000)} ago.`}</Failed>}
      {view === "timeline" ? <Timeline /> : view === "compare" ? <Compare /> : view === "tree" ? <Tree /> : view === "yaml" ? <Manifest /> : content && <Glance object={content} />}
    </section>
  );
}

// Unsure says what is not known of a moment that is shown.
export function Unsure({ moment }: { moment: Moment | undefined }) {
  if (!moment?.gap && !moment?.thinned) return null;
  const { gap, thinned } = moment;
  return (
    <span class="unsure">
      {gap && <span class="wait">The moment is in a gap, from {date(gap.from)} until {gap.to ? date(gap.to) : "now"}: {visibleText(gap.reason)}. This is the state before it.</span>}
      {thinned && <span class="quiet">Between two recorded versions there may have been others: {visibleText(thinned)}.</span>}
    </span>
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

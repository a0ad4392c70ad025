import { effect } from "@preact/signals";
import { render } from "preact";
import { visibleText } from "./format";
import { help, listen, panel, show } from "./keys";
import { ObjectView } from "./object";
import { isPipeline, Pipeline, PipelineFresh } from "./pipeline";
import { Filter, openPrompt, Prompt } from "./prompt";
import { go, none, print, query } from "./query";
import { start } from "./rows";
import { Fresh, Summary, Token, Trouble } from "./status";
import { Table } from "./table";
import { Changes } from "./changes";
import { startTime } from "./time";
import { TimeBar } from "./timebar";

function Help() {
  return (
    <dialog open class="help" aria-label="keys">
      <dl>
        {help.map(([keys, what]) => (
          <div key={keys}>
            <dt>{keys.split(" ").map((k) => (k === "…" ? " … " : <kbd key={k}>{k}</kbd>))}</dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </dialog>
  );
}

function App() {
  const p = panel.value;
  return (
    <>
      <header class="bar">
        <h1>
          <button type="button" class="query" title="change what is shown (:)" onClick={() => show("prompt")}>
            <span>:</span>
            {visibleText(print({ ...query.value }))}
          </button>
        </h1>
        {isPipeline.value ? <PipelineFresh /> : <><Filter /><Fresh /><button type="button" class="to-pipeline" title="how fresh the mirror is (p)" onClick={() => go({ ...none, resource: "pipeline" })}>pipeline</button></>}
      </header>
      {!isPipeline.value && <><Summary /><TimeBar /><Trouble /></>}
      <Prompt />
      {p === "help" && <Help />}
      {p === "token" && <Token message="A bearer token of the cluster" />}
      <main>
        {isPipeline.value ? <Pipeline ask={(message) => <Token message={message} />} /> : (
          <>
            {query.value.around ? <Changes /> : <Table />}
            {query.value.object && <ObjectView />}
          </>
        )}
      </main>
      <footer>
        <button type="button" tabIndex={-1} onClick={() => show("prompt")}><kbd>:</kbd> show</button>
        {!isPipeline.value && <button type="button" tabIndex={-1} onClick={() => show("filter")}><kbd>/</kbd> filter</button>}
        <button type="button" tabIndex={-1} onClick={() => (panel.value = panel.value === "help" ? "" : "help")}><kbd>?</kbd> keys</button>
      </footer>
    </>
  );
}

effect(() => {
  if (panel.value === "prompt") openPrompt();
});
effect(() => {
  document.title = visibleText(query.value.object || print(query.value)) + " · Tidings";
});
listen();
start();
startTime();
render(<App />, document.body);

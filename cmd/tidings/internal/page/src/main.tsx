import { effect } from "@preact/signals";
import { render } from "preact";
import { visibleText } from "./format";
import { help, listen, panel, show } from "./keys";
import { ObjectView } from "./object";
import { Filter, openPrompt, Prompt } from "./prompt";
import { print, query } from "./query";
import { start } from "./rows";
import { Fresh, Summary, Token, Trouble } from "./status";
import { Table } from "./table";
import { Changes } from "./changes";
import { PastObject } from "./past";
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
        <Filter />
        <Fresh />
      </header>
      <Summary />
      <TimeBar />
      <Trouble />
      <Prompt />
      {p === "help" && <Help />}
      {p === "token" && <Token message="A bearer token of the cluster" />}
      <main>
        {query.value.around ? <Changes /> : <Table />}
        {query.value.object && (query.value.at ? <PastObject /> : <ObjectView />)}
      </main>
      <footer>
        <button type="button" tabIndex={-1} onClick={() => show("prompt")}><kbd>:</kbd> show</button>
        <button type="button" tabIndex={-1} onClick={() => show("filter")}><kbd>/</kbd> filter</button>
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

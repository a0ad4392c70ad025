import { age, visibleText } from "./format";
import { command, go, query } from "./query";
import { counts, heardAt, limited, link, now, objects, shown, skew, synced, total, upstream } from "./rows";
import { tone } from "./format";
import { Problem, token } from "./stream";
import { panel } from "./keys";

const thousands = new Intl.NumberFormat("en");

// Fresh says how far what is shown can be believed to be what the cluster has now.
export function Fresh() {
  const at = now.value;
  const seconds = (ms: number) => age(Math.max(0, ms) / 1000);
  const l = link.value;
  if (l.state === "connecting") return <span class="fresh wait" role="status">connecting…</span>;
  if (l.state === "lost") {
    return (
      <span class="fresh bad" role="status">
        {heardAt.value ? `connection lost · as of ${seconds(at - heardAt.value)} ago` : "not connected"}
      </span>
    );
  }
  const u = upstream.value!;
  if (!synced.value) return <span class="fresh wait" role="status">loading {thousands.format(objects.value)}…</span>;
  if (u.phase !== "watching") {
    return <span class="fresh bad" role="status" title={"the mirror is " + u.phase}>stale for {seconds(at + skew.value - Math.max(u.contact, 1))} · the mirror cannot follow the cluster</span>;
  }
  return <span class="fresh good" role="status" title={"The mirror follows the cluster. The time is since the cluster last sent something."}>live · {seconds(at + skew.value - u.contact)}</span>;
}

// Summary counts the rows by their status.
export function Summary() {
  const filtered = total.value !== objects.value;
  if (!shown.value) return <p class="summary" />;
  return (
    <p class="summary">
      <span>
        <b>{thousands.format(total.value)}</b> {filtered && <>of {thousands.format(objects.value)} </>}
        {visibleText(query.value.resource)}
      </span>
      {counts.value.map((c) => (
        <button key={c.status} type="button" tabIndex={-1} class={"count " + tone(c.status)} title="filter by this" onClick={() => c.status && go({ filter: c.status.toLowerCase() }, true)}>
          <b>{thousands.format(c.rows)}</b> {visibleText(c.status || "others")}
        </button>
      ))}
      {limited.value && (
        <span class="wait" title={"You may not read all namespaces. These are those that you may read: " + limited.value.join(", ")}>
          only what you may read: {limited.value.length === 1 ? "namespace " + limited.value[0] : limited.value.length + " namespaces"}
        </span>
      )}
    </p>
  );
}

// Trouble says why nothing is shown, or why it does not change any more.
export function Trouble() {
  const problem = link.value.state === "lost" ? link.value.problem : undefined;
  if (!problem) return null;
  if (!(problem instanceof Problem)) {
    return <p class="trouble" role="alert">No connection to the server. Trying again by itself. {heardAt.value > 0 && "What is shown is not live."}</p>;
  }
  if (problem.status === 401 || problem.reason === "Unauthorized") return <Token message={token.value ? "The cluster does not accept this token." : "Who are you? The cluster asks for a bearer token."} />;
  const forbidden = problem.status === 403 || problem.reason === "Forbidden";
  return (
    <div class="trouble" role="alert">
      <p>
        {forbidden && <b>Not permitted. </b>}
        {visibleText(problem.message)}
        {problem.progress && ` ${thousands.format(problem.progress.received)} received so far.`}
        {!problem.final && " Trying again by itself."}
      </p>
      {problem.exists.length > 0 && <p class="exists">There are: {problem.exists.slice(0, 40).map(visibleText).join(", ")}</p>}
      {forbidden && <p><button type="button" onClick={() => (panel.value = "token")}>Use another token</button></p>}
    </div>
  );
}

// Token takes the caller's token. It goes nowhere but into the header of requests.
export function Token({ message }: { message: string }) {
  return (
    <form
      class="token"
      onSubmit={(e) => {
        e.preventDefault();
        const input = (e.currentTarget as HTMLFormElement).elements.namedItem("token") as HTMLInputElement;
        token.value = input.value.trim().replace(/^Bearer\s+/i, "");
        input.value = "";
        panel.value = "";
      }}
    >
      <label>
        {message}
        <input name="token" type="password" autocomplete="off" spellcheck={false} ref={(e) => e?.focus()} placeholder="paste it here" />
      </label>
      <p>It is kept in the memory of this tab until you close it or load it anew. For your kubeconfig's user: <code>kubectl create token NAME</code>, or your provider's credential helper.</p>
      <button type="submit">Go</button>
    </form>
  );
}

export function copy(text: string): void {
  void navigator.clipboard?.writeText(text);
}

export function copyCommand(): void {
  copy(command(query.value));
}

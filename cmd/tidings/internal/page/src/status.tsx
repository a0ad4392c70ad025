import { age, visibleText } from "./format";
import { command, go, query } from "./query";
import { type ClusterState, clusters, counts, heardAt, link, now, objects, shown, skew, synced, total, type Upstream, upstream, type Visible, visible } from "./rows";
import { tone } from "./format";
import { Problem, token } from "./stream";
import { panel } from "./keys";
import { AsOf } from "./timebar";

const thousands = new Intl.NumberFormat("en");

const seconds = (ms: number) => age(Math.max(0, ms) / 1000);

// lag says how far the mirror of a cluster is behind.
function lag(u: Upstream): { tone: string; text: string } {
  const at = now.value + skew.value;
  if (u.phase !== "watching") return { tone: "bad", text: `stale for ${seconds(at - Math.max(u.contact, 1))}` };
  return { tone: "good", text: `live · ${seconds(at - u.contact)}` };
}

// live reports whether a cluster is shown as it is now.
export const live = (c: ClusterState): boolean => c.upstream?.phase === "watching";

// Fresh says how far what is shown can be believed to be what the cluster has now.
export function Fresh() {
  const at = now.value;
  const l = link.value;
  if (l.state === "connecting") return <span class="fresh wait" role="status">connecting…</span>;
  if (l.state === "lost") {
    const answered = l.problem instanceof Problem; // the connection is there
    const old = heardAt.value > 0 && (shown.value || !answered) ? ` · as of ${seconds(at - heardAt.value)} ago` : "";
    return <span class="fresh bad" role="status">{answered ? (old ? "not live" : "not shown") : old ? "connection lost" : "not connected"}{old}</span>;
  }
  if (!synced.value) return <span class="fresh wait" role="status">loading {thousands.format(objects.value)}…</span>;
  if (query.value.at) return <AsOf />;
  const u = upstream.value;
  if (!u) { // of several clusters
    const behind = clusters.value.filter((c) => !live(c));
    const oldest = Math.min(...clusters.value.map((c) => c.upstream?.contact ?? Infinity));
    if (behind.length === 0) return <span class="fresh good" role="status" title="The mirror follows all clusters. The time is since the one that is furthest behind last sent something.">live · {seconds(at + skew.value - oldest)}</span>;
    return <span class="fresh bad" role="status">{clusters.value.length - behind.length} of {clusters.value.length} clusters live</span>;
  }
  const { tone, text } = lag(u);
  const title = tone === "good" ? "The mirror follows the cluster. The time is since the cluster last sent something." : "the mirror is " + u.phase;
  return <span class={"fresh " + tone} role="status" title={title}>{text}{tone === "bad" && " · the mirror cannot follow the cluster"}</span>;
}

// Clusters says of each of several clusters how fresh it is, or why it is not shown.
function Clusters() {
  return (
    <>
      {clusters.value.map((c) => {
        const state = c.problem
          ? { tone: "bad", text: c.problem.status === 401 ? "does not accept your token" : c.problem.status === 403 ? "not permitted" : "not shown: " + c.problem.error.slice(0, 120) }
          : c.moment ? { tone: "wait", text: "as it was" }
          : c.upstream ? (c.synced ? lag(c.upstream) : { tone: "wait", text: "loading…" }) : { tone: "wait", text: "connecting…" };
        return (
          <span key={c.name} class="cluster" title={c.problem && visibleText(c.problem.error)}>
            <span class={"dot " + state.tone} />{visibleText(c.name)} <span class={c.problem || state.tone === "bad" ? "bad" : ""}>{visibleText(state.text)}</span>
            {c.visible && <Limits visible={c.visible} />}
          </span>
        );
      })}
    </>
  );
}

// Limits says to which namespaces the rows are limited by rights.
function Limits({ visible: v }: { visible: Visible }) {
  const named = v.refused !== undefined;
  return (
    <>
      {!v.all && !query.value.namespace && (
        <span class="wait" title={"You may not read all namespaces. These are those that you may read: " + visibleText(v.namespaces.join(", "))}>
          {" "}only what you may read: {v.namespaces.length === 1 ? "namespace " + visibleText(v.namespaces[0]) : v.namespaces.length + " namespaces"}
        </span>
      )}
      {named && <span class="bad"> not permitted: namespace{v.refused!.length > 1 && "s"} {visibleText(v.refused!.join(", "))}</span>}
    </>
  );
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
      {visible.value && <Limits visible={visible.value} />}
      <Clusters />
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

// What belongs to the open object: its owners, what it owns, and its neighbours, with what
// is wrong with each of them.
import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { age, tone, visibleText } from "./format";
import { openOther } from "./glance";
import { Failed } from "./object";
import { query } from "./query";
import { family, type Line, neighbourhood, type Node, type Ref, relations, followRelations } from "./relations";
import { inSight } from "./rows";
import { token } from "./stream";
import { listPath, subject } from "./subject";
import { clock } from "./time";

const chosen = signal(-1); // the line that keys act on, -1 for that of the open object

const lines = computed(() => {
  const { tree } = relations.value;
  return tree ? [family(tree), neighbourhood(tree)] : [[], []];
});
const all = computed(() => lines.value.flat());
const here = () => (chosen.value >= 0 ? chosen.value : all.value.findIndex((l) => l.node === relations.value.tree?.object));

function move(to: number): void {
  chosen.value = Math.max(0, Math.min(to, all.value.length - 1));
  requestAnimationFrame(() => document.querySelector(".object .relatives [aria-current]")?.scrollIntoView({ block: "nearest" }));
}

// exists reports whether a node is an object of the cluster that can be opened.
const exists = (n: Ref & { missing?: boolean }) => n.apiVersion !== "" && !n.missing;

function open(n: (Ref & { missing?: boolean }) | undefined): void {
  if (n && exists(n)) openOther(n.apiVersion, n.kind, (n.namespace ? n.namespace + "/" : "") + n.name);
}

export const treeKeys: Record<string, () => void> = {
  j: () => move(here() + 1), ArrowDown: () => move(here() + 1), k: () => move(here() - 1), ArrowUp: () => move(here() - 1),
  PageDown: () => move(here() + 10), PageUp: () => move(here() - 10), g: () => move(0), G: () => move(all.value.length),
  Enter: () => open(all.value[here()]?.node),
};

function Name({ of, here }: { of: Ref & { missing?: boolean }; here?: string }) {
  const text = (
    <>
      <span class="quiet">{visibleText(of.kind)}</span> {visibleText(of.name)}
      {of.namespace && of.namespace !== here && <span class="quiet"> in {visibleText(of.namespace)}</span>}
    </>
  );
  return exists(of) ? <button type="button" tabIndex={-1} class="name" onClick={() => open(of)}>{text}</button> : <span class="name">{text}</span>;
}

// links say how a neighbour is related.
function links(n: Node): string[] {
  const self = n.kind + "/" + n.name;
  const said = (n.links ?? []).slice(0, 2).map((l) => (l.from === self ? `${l.relation} ${l.to}` : `${l.from} ${l.relation} it`));
  const more = (n.links?.length ?? 0) - said.length + (n.moreLinks ?? 0);
  return more ? [...said, `and ${more} more`] : said;
}

function Row({ line: { depth, node, remark }, index }: { line: Line; index: number }) {
  const current = index === here() ? "true" : undefined;
  const style = { "--depth": depth } as never;
  if (!node) return <li class="quiet" style={style} aria-current={current}>{remark}</li>;
  const { tree } = relations.value;
  const state = node.missing ? "missing" : node.state ?? "";
  const bad = node.missing || node.wrong?.length;
  const since = node.created ? age((clock.value - Date.parse(node.created)) / 1000) : "";
  return (
    <li style={style} class={node === tree?.object ? "self" : ""} aria-current={current} onClick={() => (chosen.value = index)} onDblClick={() => open(node)}>
      <div class="node">
        <Name of={node} here={tree?.object.namespace} />
        <span class={"state " + (bad ? "bad" : tone(state.split(" ").pop()!))}>{visibleText(state)}</span>
        <span class="age">{since}</span>
      </div>
      {node.wrong?.map((f, i) => <div key={i} class="bad" title={f.field}>! {visibleText(f.message)}</div>)}
      {node.unknown?.map((f, i) => <div key={i} class="wait" title={f.field}>? {visibleText(f.message)}</div>)}
      {node.links && <div class="quiet">{visibleText(links(node).join("; "))}</div>}
    </li>
  );
}

export function Tree() {
  const { object, at } = query.value;
  const path = listPath.value;
  const { at: known, object: content } = subject.value;
  const seen = inSight.value;
  const ready = known > 0; // before, the version of the resource is not known
  const uid = content?.metadata?.uid;
  useEffect(() => {
    relations.value = {};
    chosen.value = -1;
  }, [path, object, at]);
  useEffect(() => {
    const stop = new AbortController();
    if (ready && uid && seen) followRelations(stop.signal);
    return () => stop.abort();
  }, [path, object, at, token.value, ready, uid, seen]);
  const { tree, problem } = relations.value;
  const cause = tree?.cause ?? [];
  const last = cause[cause.length - 1];
  const [own, others] = lines.value;
  return (
    <div class={"scroll" + (tree && problem ? " stale" : "")} role="region" tabIndex={0} aria-label="tree" ref={(e) => {
        if (e && document.activeElement === document.body) e.focus({ preventScroll: true });
      }}>
      {problem && !subject.value.gone && <Failed problem={problem} />}
      {!tree && !problem && !subject.value.gone && <p class="quiet">loading…</p>}
      {last && (
        <p class="cause" role="status">
          <b>Likely cause</b> {cause.map((c, i) => <span key={i}>{i > 0 && " → "}<Name of={c} here={tree!.object.namespace} /></span>)}: <span class="bad">{visibleText(last.message)}</span> <code class="quiet">{visibleText(last.field)}</code>
        </p>
      )}
      <ul class="relatives" aria-label="owners, and what it owns">{own.map((l, i) => <Row key={i} line={l} index={i} />)}</ul>
      {others.length > 0 && (
        <>
          <h3>Neighbours</h3>
          <ul class="relatives" aria-label="neighbours">{others.map((l, i) => <Row key={i} line={l} index={own.length + i} />)}</ul>
        </>
      )}
      {tree?.notLookedAt?.map((u) => <p class="quiet" key={u.resource}>Not looked at: {visibleText(`${u.resource}: ${u.why}`)}</p>)}
    </div>
  );
}

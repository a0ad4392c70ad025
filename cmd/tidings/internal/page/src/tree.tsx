// What belongs to the open object: its owners, what it owns, and its neighbours, with what
// is wrong with each of them.
import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { age, tone, visibleText } from "./format";
import { openOther } from "./glance";
import { Failed } from "./object";
import { family, followRelations, type Line, neighbourhood, type Node, place, type Ref, relations, same } from "./relations";
import { inSight } from "./rows";
import { token } from "./stream";
import { subject } from "./subject";
import { clock } from "./time";

const lines = computed(() => {
  const { tree } = relations.value;
  return tree ? [family(tree), neighbourhood(tree)] : [[], []];
});
const all = computed(() => lines.value.flat());

const chosen = signal<{ at: string; line: Line; index: number } | null>(null);

// here is the index of the line that keys act on: the chosen one, wherever it is in what
// was read last, or else that of the open object.
const here = computed(() => {
  const { tree } = relations.value;
  const c = chosen.value;
  if (c?.at !== place.value) return all.value.findIndex((l) => l.node === tree?.object);
  const found = all.value.findIndex((l) => same(l, c.line));
  return found >= 0 ? found : Math.min(c.index, all.value.length - 1);
});

function choose(index: number): void {
  const line = all.value[index];
  if (line) chosen.value = { at: place.value, line, index };
}

function move(to: number): void {
  choose(Math.max(0, Math.min(to, all.value.length - 1)));
  requestAnimationFrame(() => document.querySelector(".object .relatives [aria-current]")?.scrollIntoView({ block: "nearest" }));
}

// exists reports whether a node is an object of the cluster that can be opened.
const exists = (n: Ref & { missing?: boolean }) => n.apiVersion !== "" && !n.missing;

function open(n: (Ref & { missing?: boolean }) | undefined): void {
  if (n && exists(n)) openOther(n.apiVersion, n.kind, (n.namespace ? n.namespace + "/" : "") + n.name);
}

export const treeKeys: Record<string, () => void> = {
  j: () => move(here.value + 1), ArrowDown: () => move(here.value + 1), k: () => move(here.value - 1), ArrowUp: () => move(here.value - 1),
  PageDown: () => move(here.value + 10), PageUp: () => move(here.value - 10), g: () => move(0), G: () => move(all.value.length),
  Enter: () => open(all.value[here.value]?.node),
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
  const current = index === here.value ? "true" : undefined;
  const style = { "--depth": depth } as never;
  if (!node) return <li class="quiet" style={style} aria-current={current}>{remark}</li>;
  const { tree } = relations.value;
  const state = node.missing ? "missing" : node.state ?? "";
  const bad = node.missing || node.wrong?.length;
  const since = node.created ? age((clock.value - Date.parse(node.created)) / 1000) : "";
  return (
    <li style={style} class={node === tree?.object ? "self" : ""} aria-current={current} onClick={() => choose(index)} onDblClick={() => open(node)}>
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
  const { at: known, object: content } = subject.value;
  const seen = inSight.value;
  const ready = known > 0; // before, the version of the resource is not known
  const uid = content?.metadata?.uid;
  useEffect(() => {
    const stop = new AbortController();
    if (ready && uid && seen) followRelations(stop.signal);
    return () => stop.abort();
  }, [place.value, token.value, ready, uid, seen]);
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

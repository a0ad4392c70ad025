// The keys while an object is open. The others scroll it.
import { manifestKeys, search } from "./manifest";
import { go, query, type View } from "./query";
import { timelineKeys } from "./timeline";
import { treeKeys } from "./tree";

const show = (view: View) => () => {
  go({ view });
  if (document.activeElement instanceof HTMLElement) document.activeElement.blur(); // the view takes the focus
};

export function objectKey(key: string): (() => void) | undefined {
  const views: Record<string, () => void> = { d: show(""), y: show("yaml"), r: show("tree"), h: show("timeline"), "=": show("compare"), "/": search };
  return { "": {}, compare: {}, yaml: manifestKeys, timeline: timelineKeys, tree: treeKeys }[query.value.view][key as never] ?? views[key];
}

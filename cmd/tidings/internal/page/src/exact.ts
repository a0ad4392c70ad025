// Numbers as the cluster has them. Those of JavaScript have 53 bits, and do not tell 1.0
// from 1.

// Exact is a number that JavaScript would show as another one.
export class Exact {
  readonly #text: string; // private, so that it has no fields like those of an object
  constructor(text: string) {
    this.#text = text;
  }
  toString(): string {
    return this.#text;
  }
  valueOf(): number {
    return Number(this.#text);
  }
  toJSON(): unknown {
    return (JSON as any).rawJSON(this.#text);
  }
}

// suspect matches a text with such a number, and few others: the exact way takes longer.
const suspect = /[:,[]\s*-?\d(?:\d{15}|\d*[.eE])/;

// parse reads JSON. A browser from before 2025 does not tell how a number was written,
// and gets its own.
export function parse(text: string): any {
  if (!suspect.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_: string, value: any, context?: { source?: string }) =>
    typeof value === "number" && context?.source !== undefined && context.source !== String(value) ? new Exact(context.source) : value);
}

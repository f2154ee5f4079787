// Sizes, as the Spark job measured them: the memory of all keys, and the prefixes of names as a treemap and as a table.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact-htm.js";
import { sections } from "./live.js";
import { layOut, nest } from "./treemap.js";
import { ago, bytes, count, plural } from "./words.js";

const LEGIBLE = { width: 30, height: 20 }; // pixels; a smaller tile has no text
const TWO_LINES = 38; // pixels; in a lower tile only the name is told
const NAMED = 5; // prefixes that the picture's label tells

export function Sizes() {
  const now = sections.sizes;
  if (!now?.last) return html`<p class="quiet">Sizes were not measured. <code>slotferry sizing run</code> measures them.</p>`;
  return html`
    <p>${bytes(now.bytes)} in ${plural(now.keys, "key")}, measured ${ago(now.last.taken_at)} ago${now.last.complete ? "" : ", not all of it"}.</p>
    ${now.warnings.map((text) => html`<p class="quiet">${text}</p>`)}
    ${now.prefixes.length ? html`<${Prefixes} prefixes=${now.prefixes} measured=${now.last} />` : html`<p class="quiet">The measurement told no prefixes of names.</p>`}
  `;
}

function Prefixes({ prefixes, measured }) {
  const place = useRef(null);
  const [box, setBox] = useState({ width: 0, height: 0 });
  const [pointed, point] = useState(null);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setBox({ width: entry.contentRect.width, height: entry.contentRect.height }));
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  const nodes = useMemo(() => nest(prefixes, measured), [prefixes, measured.bytes, measured.keys]);
  const tiles = useMemo(() => layOut(nodes, measured.bytes, { x: 0, y: 0, ...box }), [nodes, measured.bytes, box]);
  const share = (one) => `${((100 * one.bytes) / Math.max(1, measured.bytes)).toFixed(1)}%`;
  const says = (one) => `${name(one)} ${bytes(one.bytes)}, ${share(one)}, ${plural(one.keys, "key")}`;
  const label = `Memory by prefix. ${nodes.slice(0, NAMED).map((one) => `${name(one)} ${share(one)}`).join(", ")}. The table below has all.`;
  return html`
    <h3>Memory by prefix of names</h3>
    <div class="tree" role="img" aria-label=${label} ref=${place} onPointerLeave=${() => point(null)}>${tiles.map(
      (tile, at) => html`<${Tile} key=${at} tile=${tile} share=${share(tile.node)} point=${point} />`,
    )}</div>
    <p id="prefix-says" class="quiet">${pointed ? says(pointed) : "Point at a prefix to see how much it takes."}</p>
    <details><summary>${plural(prefixes.length, "prefix", "prefixes")} as a table</summary>
      <p class="quiet">What a longer prefix has counts in the shorter one as well.</p>
      <table id="prefixes"><thead><tr><th>Prefix</th><th class="right">Memory</th><th class="right">Share</th><th class="right">Keys</th></tr></thead>
        <tbody>${prefixes.map((one, at) => html`<tr key=${at}>
          <td>${one.depth ? html`<code>${one.prefix}</code>` : name(one)}</td>
          <td class="right">${bytes(one.bytes)}</td>
          <td class="right">${share(one)}</td>
          <td class="right">${count(one.keys)}</td></tr>`)}</tbody></table></details>
  `;
}

function Tile({ tile, share, point }) {
  const { node, level, open, hue, x, y, width, height } = tile;
  const kind = node.prefix === null ? "rest" : level ? "inside" : "outside";
  const style = { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px`, "--hue": hue };
  const legible = width >= LEGIBLE.width && height >= LEGIBLE.height;
  const size = `${bytes(node.bytes)}, ${share}`;
  // What is in an open one begins below its first line.
  const more = open ? ` ${size}` : height >= TWO_LINES && html`<br />${size}`;
  return html`<div class=${`${kind} ${legible ? "" : "blank"}`} style=${style} onPointerEnter=${() => point(node)}>${legible && html`${node.short || name(node)}${more}`}</div>`;
}

function name(one) {
  if (one.prefix === null) return "(others)";
  return one.depth ? one.prefix : "(no separator)";
}

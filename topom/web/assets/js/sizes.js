// Sizes, as the Spark job measured them: the prefixes of the biggest keys as a treemap, and the groups.

import { html, useState } from "../vendor/preact-htm.js";
import { get } from "./api.js";
import { ofGroup } from "./colours.js";
import { sections } from "./live.js";
import { ago, bytes, count, plural } from "./words.js";

const MOST_TILES = 40;
const SEPARATOR = /[:/._|-]/;

export function Sizes() {
  const now = sections.sizes;
  const [tiles, set] = useState({ taken: null, found: [], says: "" });
  if (!now?.last) return html`<p class="quiet">Sizes were not measured. <code>slotferry sizing run</code> measures them.</p>`;
  const look = async () => {
    try {
      const answer = await get("/slots?biggest=10");
      set({ taken: now.last.taken_at, found: byPrefix(answer.slots), says: "" });
    } catch (error) {
      set({ taken: null, found: [], says: `${error.message}.` });
    }
  };
  return html`
    <p>${bytes(now.bytes)} in ${plural(now.keys, "key")}, measured ${ago(now.last.taken_at)} ago${now.last.complete ? "" : ", not all of it"}.</p>
    ${now.warnings.map((text) => html`<p class="quiet">${text}</p>`)}
    <div class="row"><button type="button" id="show-prefixes" onClick=${look}>${tiles.taken ? "Look again" : "Show the biggest keys by prefix"}</button></div>
    <p role="status" class="error">${tiles.says}</p>
    ${tiles.taken && html`<${Treemap} tiles=${tiles.found} />`}
  `;
}

function byPrefix(slots) {
  const found = new Map();
  for (const slot of slots)
    for (const key of slot.biggest || []) {
      const prefix = key.key.split(SEPARATOR, 1)[0] || key.key.slice(0, 1);
      const tile = found.get(prefix) || { prefix, bytes: 0, keys: 0 };
      tile.bytes += key.bytes;
      tile.keys += 1;
      found.set(prefix, tile);
    }
  return [...found.values()].sort((a, b) => b.bytes - a.bytes);
}

function Treemap({ tiles }) {
  if (!tiles.length) return html`<p class="quiet">The measurement named no keys.</p>`;
  const shown = tiles.slice(0, MOST_TILES);
  const rest = tiles.slice(MOST_TILES);
  if (rest.length)
    shown.push({ prefix: `${count(rest.length)} more`, bytes: rest.reduce((sum, tile) => sum + tile.bytes, 0), keys: rest.reduce((sum, tile) => sum + tile.keys, 0) });
  const placed = layOut(shown.filter((tile) => tile.bytes > 0), 0, 0, 100, 100);
  const says = shown.slice(0, 10).map((tile) => `${tile.prefix}: ${bytes(tile.bytes)}`).join(", ");
  return html`<div class="tree" role="img" aria-label=${`Biggest keys by prefix: ${says}`}>${placed.map(({ tile, x, y, width, height }, at) => html`<div
      key=${tile.prefix} title=${`${tile.prefix}: ${bytes(tile.bytes)} in ${plural(tile.keys, "key")}`}
      style=${{ left: `${x}%`, top: `${y}%`, width: `${width}%`, height: `${height}%`, backgroundColor: pale(at) }}>${tile.prefix}<br />${bytes(tile.bytes)}</div>`)}</div>`;
}

const pale = (at) => ofGroup(at + 1).replace(/\d+/g, (part) => String(Math.round(Number(part) * 0.35 + 160)));

// Cut the longer side in two halves of about the same weight, and go on in each.
function layOut(tiles, x, y, width, height) {
  if (!tiles.length) return [];
  if (tiles.length === 1) return [{ tile: tiles[0], x, y, width, height }];
  const all = tiles.reduce((sum, tile) => sum + tile.bytes, 0);
  let half = 0;
  let cut = 0;
  while (cut < tiles.length - 1 && (cut === 0 || half + tiles[cut].bytes / 2 < all / 2)) {
    half += tiles[cut].bytes;
    cut += 1;
  }
  const share = half / all;
  const [first, second] = [tiles.slice(0, cut), tiles.slice(cut)];
  if (width * 3 >= height) {
    return [...layOut(first, x, y, width * share, height), ...layOut(second, x + width * share, y, width * (1 - share), height)];
  }
  return [...layOut(first, x, y, width, height * share), ...layOut(second, x, y + height * share, width, height * (1 - share))];
}

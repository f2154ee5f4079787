// Migrators: the processes that make copies, where they are, and what each follows for its copies.

import { html, useState } from "../vendor/preact-htm.js";
import { sections } from "./live.js";
import { bytes, count, plural, rate } from "./words.js";

const PAGE = 20;

export function Migrators() {
  const [most, setMost] = useState(PAGE);
  const all = Object.values(sections.migrators || {}).sort((a, b) => a.id - b.id);
  if (!all.length) return null;
  const shown = all.slice(0, most);
  return html`
    <h3>Migrators</h3>
    <p class="quiet">They make the copies of slots that move by the stream.${all.length > shown.length ? ` ${count(shown.length)} of ${count(all.length)} are shown.` : ""}</p>
    <table class="cards" id="migrators">
      <thead><tr><th>Migrator</th><th>Where</th><th>Copies</th><th class="right">Speed</th><th class="right">Free disk</th></tr></thead>
      <tbody>${shown.map((one) => html`<tr key=${one.id}>
        <td data-label="Migrator">${one.id} <span class="address">${one.hostname}</span> <span class="quiet">process ${one.pid}, ${one.version}</span> <span class="tag">${one.own ? "started by topom" : "on its own"}</span></td>
        <td data-label="Where">${[one.node, one.datacenter].filter(Boolean).join(", ") || "not said"}</td>
        <td data-label="Copies">${one.copying ? one.copies.map((copy) => html`<${Copy} key=${`${copy.source} ${copy.target}`} copy=${copy} />`) : "none"}${one.copying > one.copies.length ? html`<div class="quiet">and ${count(one.copying - one.copies.length)} more</div>` : ""}</td>
        <td class="right" data-label="Speed">${one.copying ? rate(one.keys_per_second, "keys") : ""}</td>
        <td class="right" data-label="Free disk">${bytes(one.disk_bytes)}</td>
      </tr>`)}</tbody>
    </table>
    ${all.length > shown.length && html`<div class="row"><button type="button" onClick=${() => setMost(most + PAGE)}>Show more migrators</button></div>`}
  `;
}

function Copy({ copy }) {
  return html`<div><span class="address">${copy.source}</span> to <span class="address">${copy.target}</span>, ${plural(copy.slots, "slot")}; <span class="quiet">${copy.followed ? html`follows ${copy.follows} <span class="address">${copy.followed}</span>` : "follows none yet"}</span></div>`;
}

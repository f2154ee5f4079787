// Proxies: who serves, since when one is lost, and how much they do.

import { html, useState } from "../vendor/preact-htm.js";
import { sections } from "./live.js";
import { ago, count, plural, rate } from "./words.js";

const PAGE = 20;

export function Proxies() {
  const [most, setMost] = useState(PAGE);
  const all = Object.values(sections.proxies || {}).sort((a, b) => (a.state === "lost" ? 0 : 1) - (b.state === "lost" ? 0 : 1) || a.id - b.id);
  const shown = all.slice(0, most);
  if (!all.length) return html`<p class="quiet">No proxy is registered.</p>`;
  return html`
    <p class="quiet">${plural(all.length, "proxy", "proxies")}${all.length > shown.length ? `, ${count(shown.length)} shown` : ""}</p>
    <table class="cards">
      <thead><tr><th>Proxy</th><th>State</th><th class="right">Clients</th><th class="right">Requests</th><th class="right">Epoch</th></tr></thead>
      <tbody>${shown.map((proxy) => html`<tr key=${proxy.id}>
        <td data-label="Proxy">${proxy.id} <span class="address">${proxy.address}</span> <span class="quiet">${proxy.hostname}, ${plural(proxy.workers, "worker")}, ${proxy.version}</span></td>
        <td data-label="State"><span class="tag ${proxy.state === "online" ? "good" : proxy.state === "lost" ? "bad" : ""}">${proxy.state}</span>${proxy.lost_since ? ` for ${ago(proxy.lost_since)}` : ""}${proxy.draining ? html` <span class="tag waits">draining</span>` : ""}</td>
        <td class="right" data-label="Clients">${count(proxy.counters.clients)}</td>
        <td class="right" data-label="Requests">${proxy.state === "online" ? rate(sections.load?.proxies?.[proxy.id]) : ""}</td>
        <td class="right" data-label="Epoch">${count(proxy.epoch)}</td>
      </tr>`)}</tbody>
    </table>
    ${all.length > shown.length && html`<div class="row"><button type="button" onClick=${() => setMost(most + PAGE)}>Show more proxies</button></div>`}
  `;
}

// What is busy: the hottest keys, and the slots and users with the most requests. Names of keys, never their values.

import { html } from "../vendor/preact-htm.js";
import { sections } from "./live.js";
import { bytes, count, rate } from "./words.js";

const MOST = 10;

export function Load() {
  const now = sections.load;
  if (!now?.total) return html`<p class="quiet">No proxy has told its load yet.</p>`;
  return html`
    <p id="load-total">${rate(now.total.requests, "requests")}, ${bytes(now.total.bytes_in)}/s in, ${bytes(now.total.bytes_out)}/s out, as ${count(now.proxies_telling)} of ${count(now.proxies_total)} proxies tell.</p>
    <h3>Hot keys</h3>
    ${now.hot_keys.length ? html`<${HotKeys} keys=${now.hot_keys.slice(0, MOST)} />` : html`<p class="quiet">No key stands out.</p>`}
    <h3>Busiest slots</h3>
    <table class="cards"><thead><tr><th>Slot</th><th>Group</th><th class="right">Requests</th><th class="right">In</th><th class="right">Out</th></tr></thead>
      <tbody>${now.slots.filter((slot) => slot.requests > 0).slice(0, MOST).map((slot) => html`<tr key=${slot.slot}>
        <td data-label="Slot">${slot.slot}</td><td data-label="Group">${slot.group_id}</td>
        <td class="right" data-label="Requests">${rate(slot.requests)}</td>
        <td class="right" data-label="In">${bytes(slot.bytes_in)}/s</td>
        <td class="right" data-label="Out">${bytes(slot.bytes_out)}/s</td></tr>`)}</tbody></table>
    ${now.users.length > 1 && html`<h3>Users</h3><ul>${now.users.slice(0, MOST).map((user) => html`<li key=${user.user}>${user.user}: ${rate(user.requests)}</li>`)}</ul>`}
  `;
}

function HotKeys({ keys }) {
  return html`<table class="cards" id="hot-keys"><thead><tr><th>Key</th><th>Slot</th><th class="right">Requests</th><th class="right">Share</th></tr></thead>
    <tbody>${keys.map((key) => html`<tr key=${`${key.database} ${key.key}`}>
      <td data-label="Key"><code>${key.key}</code>${key.hashed ? html` <span class="quiet">(a hash of its name)</span>` : ""}${key.database ? html` <span class="quiet">database ${key.database}</span>` : ""}</td>
      <td data-label="Slot">${key.slot} <span class="quiet">group ${key.group_id}</span></td>
      <td class="right" data-label="Requests">${rate(key.rate)}</td>
      <td class="right" data-label="Share">${(100 * key.share).toFixed(1)}%</td></tr>`)}</tbody></table>`;
}

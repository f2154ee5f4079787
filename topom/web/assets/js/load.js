// What is busy: the hottest keys, and the slots and users with the most requests; and what took long or carried much.
// Names of keys, never their values.

import { html } from "../vendor/preact-htm.js";
import { sections } from "./live.js";
import { bytes, clock, count, plural, rate, took } from "./words.js";

const MOST = 10;
const LEAST_RATE = 0.1; // requests a second; a slot with fewer is not busy
// What each reason is called, and the figure that it is about.
const REASONS = {
  big_request: { name: "big request", worst: (one) => bytes(one.bytes_in) },
  big_reply: { name: "big reply", worst: (one) => bytes(one.bytes_out) },
  big_collection: { name: "big collection", worst: (one) => plural(one.elements, "element") },
  slow: { name: "slow", worst: (one) => took(one.milliseconds) },
};

export function Load() {
  return html`<${Busy} now=${sections.load} />
    <h3>Big keys and slow commands</h3>
    <${Notable} requests=${(sections.notable?.requests ?? []).slice(0, MOST)} />`;
}

function Busy({ now }) {
  if (!now?.total) return html`<p class="quiet">No proxy has told its load yet.</p>`;
  const busy = now.slots.filter((slot) => slot.requests >= LEAST_RATE).slice(0, MOST);
  return html`
    <p id="load-total">${rate(now.total.requests, "requests")}, ${bytes(now.total.bytes_in)}/s in, ${bytes(now.total.bytes_out)}/s out, as ${count(now.proxies_telling)} of ${count(now.proxies_total)} proxies tell.</p>
    <div class="halves"><div><h3>Hot keys</h3>
    ${now.hot_keys.length ? html`<${HotKeys} keys=${now.hot_keys.slice(0, MOST)} />` : html`<p class="quiet">No key stands out.</p>`}
    ${now.users.length > 1 && html`<h3>Users</h3><ul>${now.users.slice(0, MOST).map((user) => html`<li key=${user.user}>${user.user}: ${rate(user.requests)}</li>`)}</ul>`}</div>
    <div><h3>Busiest slots</h3>
    ${busy.length ? html`<table class="cards" id="busiest"><thead><tr><th>Slot</th><th>Group</th><th class="right">Requests</th><th class="right">In</th><th class="right">Out</th></tr></thead>
      <tbody>${busy.map((slot) => html`<tr key=${slot.slot}>
        <td data-label="Slot">${slot.slot}</td><td data-label="Group">${slot.group_id}</td>
        <td class="right" data-label="Requests">${rate(slot.requests)}</td>
        <td class="right" data-label="In">${bytes(slot.bytes_in)}/s</td>
        <td class="right" data-label="Out">${bytes(slot.bytes_out)}/s</td></tr>`)}</tbody></table>` : html`<p class="quiet">No slot has a request each ten seconds.</p>`}</div></div>
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

function Notable({ requests }) {
  if (!requests.length) return html`<p class="quiet">None was seen by the topom that leads.</p>`;
  return html`<table class="cards" id="notable"><thead><tr><th>Command</th><th>Worst</th><th class="right">Times</th><th>Last</th><th>From</th></tr></thead>
    <tbody>${requests.map((one, at) => html`<tr key=${at}>
      <td data-label="Command">${one.command} ${one.length ? html`<code>${one.key}</code>` : ""}${one.hashed && one.length ? html` <span class="quiet">(a hash of its name)</span>` : ""} <span class="quiet">${where(one)}</span></td>
      <td class="whole" data-label="Worst">${REASONS[one.why].name}, ${REASONS[one.why].worst(one)}</td>
      <td class="right" data-label="Times">${count(one.times)}</td>
      <td class="whole" data-label="Last">${clock(one.last_at)}</td>
      <td data-label="From">${one.user} <span class="address">${one.client}</span></td></tr>`)}</tbody></table>`;
}

const where = (one) =>
  [one.database && `database ${one.database}`, one.slot !== null && `slot ${one.slot}`, one.group_id && `group ${one.group_id}`].filter(Boolean).join(", ");

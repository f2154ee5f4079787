// What has happened, the newest first, as sentences.

import { html, useState } from "../vendor/preact-htm.js";
import { events } from "./live.js";
import { clock, count } from "./words.js";

const PAGE = 50;

export function Events() {
  const [filter, setFilter] = useState("");
  const [most, setMost] = useState(PAGE);
  const wanted = filter.trim().toLowerCase();
  const found = events.filter((event) => !wanted || `${event.what} ${event.who} ${event.text}`.toLowerCase().includes(wanted)).reverse();
  const shown = found.slice(0, most);
  return html`
    <div class="row"><label>Filter <input type="search" id="event-filter" placeholder="slots, a server, a name" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></label>
      <span class="quiet">${count(found.length)} of the latest ${count(events.length)}</span></div>
    <ul class="story" tabindex="0" aria-label="Events, the newest first">${shown.map((event) => html`<li key=${event.id}><time class="quiet" datetime=${new Date(event.at * 1000).toISOString()}>${clock(event.at)}</time> ${event.text} <span class="quiet">– ${event.who}</span></li>`)}</ul>
    ${found.length > shown.length && html`<div class="row"><button type="button" onClick=${() => setMost(most + PAGE)}>Show older events</button></div>`}
  `;
}

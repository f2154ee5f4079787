// What is looked at, and by whom.

import { html } from "../vendor/preact-htm.js";
import { sections } from "./live.js";
import { me } from "./session.js";
import { count, plural } from "./words.js";

export function Bar({ leave }) {
  const cluster = sections.cluster;
  const slots = cluster?.slots;
  return html`
    ${cluster && html`<span><strong>${cluster.product}</strong></span>
      <span class="quiet">${plural(slots.total, "slot")}, table of epoch <span id="epoch">${count(cluster.epoch)}</span></span>`}
    ${cluster?.topoms.length > 1 && html`<span class="quiet">${plural(cluster.topoms.length, "topom")}, leader ${cluster.topoms[0].url}</span>`}
    <a href="/docs">API</a>
    <span class="who">${me.name} <span class="tag" id="role">${me.role || "unknown role"}</span> <button type="button" onClick=${leave}>Log out</button></span>
  `;
}

// Groups with their servers. What has something wrong comes first; a long list is shown in pages.

import { html, useState } from "../vendor/preact-htm.js";
import { sections } from "./live.js";
import { bytes, count, plural, rate } from "./words.js";

const PAGE = 20;

export function Groups() {
  const [filter, setFilter] = useState("");
  const [most, setMost] = useState(PAGE);
  if (!sections.groups) return html`<p class="quiet">Nothing is known yet.</p>`;
  const all = Object.values(sections.groups || {});
  const wanted = filter.trim().toLowerCase();
  const found = (wanted ? all.filter((group) => matches(group, wanted)) : all).sort(worstFirst);
  const shown = found.slice(0, most);
  if (!all.length) return html`<p class="quiet">There are no groups. <code>slotferry group add</code> adds one.</p>`;
  return html`
    <div class="row">
      <label>Filter <input type="search" id="group-filter" placeholder="group, server, node" value=${filter} onInput=${(event) => {
        setFilter(event.target.value);
        setMost(PAGE);
      }} /></label>
      <span class="quiet">${plural(found.length, "group")}${found.length > shown.length ? `, ${count(shown.length)} shown` : ""}</span>
    </div>
    <table class="cards">
      <thead><tr><th>Group</th><th>Server</th><th>State</th><th class="right">Keys</th><th class="right">Memory</th><th class="right">Load</th><th class="right">Lag</th></tr></thead>
      <tbody>${shown.flatMap((group) => rows(group))}</tbody>
    </table>
    ${found.length > shown.length && html`<div class="row"><button type="button" onClick=${() => setMost(most + PAGE)}>Show more groups</button></div>`}
  `;
}

const condition = { alive: "good", suspected: "waits", failed: "bad", unknown: "" };

function rows(group) {
  const load = sections.load?.groups?.[group.id];
  const servers = group.servers.length ? group.servers : [null];
  const figures = sections.figures?.[group.id] || [];
  return servers.map((server, place) => {
    const [keys, memory, lag] = figures[place] || [];
    return html`<tr key=${`${group.id} ${server?.address}`}>
    <td data-label="Group">${place === 0 ? html`<strong>${group.id}</strong> <span class="quiet">${plural(group.slots || 0, "slot")}</span>${group.locked ? html` <span class="tag waits">locked</span>` : ""}` : html`<span class="quiet">${group.id}</span>`}</td>
    ${server === null ? html`<td colspan="6">no server</td>` : html`
    <td data-label="Server"><span class="address">${server.address}</span> <span class="quiet">${place === 0 ? "master" : "replica"}${server.datacenter ? `, ${server.datacenter}` : ""}</span></td>
    <td data-label="State"><span class="tag ${condition[server.condition] || ""}">${server.condition || "unknown"}</span>${server.joining ? html` <span class="tag waits">joining</span>` : ""}${server.role && (server.role === "master") !== (place === 0) ? html` <span class="tag bad">says it is a ${server.role === "master" ? "master" : "replica"}</span>` : ""}</td>
    <td class="right" data-label="Keys">${count(keys)}</td>
    <td class="right" data-label="Memory">${bytes(memory)}</td>
    <td class="right" data-label="Load">${place === 0 && load !== undefined ? rate(load) : ""}</td>
    <td class="right" data-label="Lag">${place === 0 ? "" : bytes(lag)}</td>`}
  </tr>`;
  });
}

function trouble(group) {
  let found = group.reason || !group.servers.length ? 2 : 0;
  for (const server of group.servers) {
    if (server.condition === "failed") found += 4;
    else if (server.condition === "suspected" || server.not_used || server.not_swept || server.not_whole) found += 1;
  }
  return found;
}

const worstFirst = (a, b) => trouble(b) - trouble(a) || a.id - b.id;

const matches = (group, wanted) =>
  String(group.id) === wanted ||
  group.servers.some((server) => [server.address, server.node, server.datacenter].some((name) => name?.toLowerCase().includes(wanted)));

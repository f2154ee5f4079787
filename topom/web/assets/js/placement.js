// On which nodes, in which datacenters, groups have their copies.

import { html, useState } from "../vendor/preact-htm.js";
import { sections } from "./live.js";
import { count, plural } from "./words.js";

const PAGE = 30;
const MOST_CHIPS = 60;

export function Placement() {
  const [most, setMost] = useState(PAGE);
  if (!sections.groups) return html`<p class="quiet">Nothing is known yet.</p>`;
  const nodes = byNode();
  if (!nodes.length) return html`<p class="quiet">There are no groups.</p>`;
  const shown = nodes.slice(0, most);
  const datacenters = [...new Set(shown.map((node) => node.datacenter))];
  return html`
    <p class="quiet">${plural(nodes.length, "node")}; a master's group is filled, a replica's outlined.</p>
    <div class="nodes">${datacenters.map((name) => html`<div class="datacenter" key=${name}>
      <h3>${name || "no datacenter named"}</h3>
      ${shown.filter((node) => node.datacenter === name).map((node) => html`<${Node} key=${node.name} node=${node} />`)}
    </div>`)}</div>
    ${nodes.length > shown.length && html`<div class="row"><button type="button" onClick=${() => setMost(most + PAGE)}>Show more nodes</button></div>`}
  `;
}

function Node({ node }) {
  const chips = node.copies.slice(0, MOST_CHIPS);
  return html`<div class="node"><div>${node.name}</div>${chips.map((copy) => html`<span
    class="chip ${copy.master ? "master" : ""} ${copy.failed ? "failed" : ""}"
    title=${`group ${copy.group}: ${copy.address}, ${copy.master ? "master" : "replica"}${copy.failed ? ", has failed" : ""}`}>${copy.group}</span>`)}${node.copies.length > chips.length ? ` and ${count(node.copies.length - chips.length)} more` : ""}</div>`;
}

function byNode() {
  const found = new Map();
  for (const group of Object.values(sections.groups || {}))
    group.servers.forEach((server, place) => {
      const name = server.node || server.address;
      const node = found.get(name) || { name, datacenter: server.datacenter || "", copies: [] };
      node.copies.push({ group: group.id, address: server.address, master: place === 0, failed: server.condition === "failed" });
      found.set(name, node);
    });
  return [...found.values()].sort((a, b) => a.datacenter.localeCompare(b.datacenter) || a.name.localeCompare(b.name, undefined, { numeric: true }));
}

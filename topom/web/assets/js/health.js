// What is wrong now, since when, and what to do about it.

import { html } from "../vendor/preact-htm.js";
import { post } from "./api.js";
import { ask } from "./dialog.js";
import { connection, sections } from "./live.js";
import { mayAct } from "./session.js";
import { ago, plural } from "./words.js";

export function Health() {
  const cluster = sections.cluster;
  if (!cluster) return html`<p class="quiet">Nothing is known yet.</p>`;
  const all = Object.entries(sections.problems || {});
  const grave = all.filter(([, one]) => one.grave);
  const passing = all.filter(([, one]) => !one.grave);
  const verdict = grave.length
    ? ["bad", `${plural(grave.length, "thing is", "things are")} wrong`]
    : passing.length
      ? ["waits", `Nothing is wrong; ${plural(passing.length, "thing waits", "things wait")}`]
      : ["good", "All is well"];
  const loops = cluster.loops || [];
  return html`
    <p class="verdict ${verdict[0]}" id="verdict" role="status">${verdict[1]}${connection.open ? "" : ", as last heard"}</p>
    ${verdict[0] === "good" && html`<p class="quiet">That is what topom watches. <code>slotferry doctor</code> also looks at settings that will hurt one day.</p>`}
    <ul class="problems">${[...grave, ...passing].map(([key, one]) => html`<${Problem} key=${key} one=${one} />`)}</ul>
    ${mayAct() && html`<div class="row">${acts(cluster)}</div>`}
    ${loops.length > 0 && html`<h3>What topom does by itself</h3>
      <ul>${loops.map((loop) => html`<li key=${loop.name}>${loop.says} <span class="quiet">(${loop.name}, for ${ago(loop.since)})</span></li>`)}</ul>`}
  `;
}

function Problem({ one }) {
  const since = ago(one.since);
  return html`<li class=${one.grave ? "grave" : ""}>
    <span class="what">${coded(one.what)}</span>${since && html` <span class="quiet">for ${since}</span>`}
    ${one.to_do && html`<p>To do: ${coded(one.to_do)}</p>`}
  </li>`;
}

// What stands between back quotes is a command.
const coded = (text) => text.split("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));

function acts(cluster) {
  const found = [];
  if (cluster.protection?.active) {
    found.push(html`<button type="button" onClick=${() => ask({
      title: "Lift the protection?",
      says: ["topom acts by itself again although many members are lost: it replaces masters and gives up on proxies.", "The protection comes back when these members are back."],
      button: "Lift the protection",
      run: () => post("/protection/lift").then(() => ""),
    })}>Lift the protection…</button>`);
  }
  found.push(
    cluster.pause
      ? html`<button type="button" onClick=${() => ask({
          title: "Let topom act by itself again?",
          says: "It replaces failed masters, moves slots that wait, and goes on with all that it does by itself.",
          button: "Let it act",
          run: () => post("/resume").then(() => ""),
        })}>Let topom act by itself…</button>`
      : html`<button type="button" onClick=${() => ask({
          title: "Pause topom?",
          says: ["topom does nothing by itself until you let it: it replaces no failed master, and moves halt.", "It still does what operators order. Clients are served as before."],
          button: "Pause topom",
          run: () => post("/pause", { why: "paused on the page" }).then(() => ""),
        })}>Pause topom…</button>`,
  );
  return found;
}

// Rebalance: a plan, what it costs, the groups before and after side by side, and the button that begins it.

import { html, useState } from "../vendor/preact-htm.js";
import { post } from "./api.js";
import { ask } from "./dialog.js";
import { sections } from "./live.js";
import { mayAct } from "./session.js";
import { ago, bytes, count, duration, plural } from "./words.js";

export const POLICIES = [
  ["codis", "numbers of slots"],
  ["bytes", "memory of keys"],
  ["load", "load, within memory"],
];
const MOST_BARS = 40;

export function Rebalance() {
  const [policy, setPolicy] = useState("codis");
  const [at, set] = useState({ plan: null, runs: false, says: "" });
  const look = async () => {
    set({ plan: null, runs: true, says: "" });
    try {
      set({ plan: await post(`/rebalance?policy=${policy}&dry_run=true`), runs: false, says: "" });
    } catch (error) {
      set({ plan: null, runs: false, says: `${error.message}.` });
    }
  };
  if (!mayAct()) return html`<${Decision} /><p class="quiet">Operators plan and begin rebalances here.</p>`;
  return html`
    <${Decision} />
    <div class="row">
      <label>Even out <select id="policy" value=${policy} onChange=${(event) => {
        setPolicy(event.target.value);
        set({ plan: null, runs: false, says: "" });
      }}>${POLICIES.map(([value, label]) => html`<option value=${value}>${label}</option>`)}</select></label>
      <button type="button" id="plan" disabled=${at.runs} onClick=${look}>Show the plan</button>
    </div>
    <p role="status" class="error">${at.says}</p>
    ${at.plan && html`<${Plan} plan=${at.plan} begin=${() => begin(at.plan, () => set({ plan: null, runs: false, says: "" }))} />`}
  `;
}

// What topom decided last about moving slots by itself.
function Decision() {
  const last = sections.decision;
  if (!last?.auto) return html`<p class="quiet">topom moves no slots by itself (the setting <code>rebalance</code>).</p>`;
  return html`<p id="decision">By itself: ${last.text || "nothing is decided yet"}${last.at ? html` <span class="quiet">(${ago(last.at)} ago)</span>` : ""}</p>`;
}

function Plan({ plan, begin }) {
  const { cost, moves } = plan;
  const byLoad = plan.policy === "load";
  const known = cost.total.bytes !== null;
  const figure = (held) => (byLoad ? Math.max(0, 100 + (held.load_percent_off ?? 0)) : known ? held.bytes : held.slots);
  const shown = cost.groups.slice(0, MOST_BARS);
  const most = Math.max(1, ...cost.groups.flatMap((group) => [figure(group.before), figure(group.after)]));
  const show = byLoad ? (percent) => `${Math.round(percent)}% of its share` : known ? bytes : (number) => plural(number, "slot");
  return html`<div id="the-plan">
    <p>${moves.length ? sentence(plan) : "There is nothing to move."}</p>
    ${[...plan.reasons, ...plan.warnings].map((text) => html`<p class="quiet">${text}</p>`)}
    ${moves.length > 0 && html`
      <h3>Groups before (grey) and after (blue)</h3>
      <div class="bars">${shown.map((group) => html`
        <span>group ${group.id}</span>
        <span class="pair" aria-hidden="true"><span class="bar before" style=${{ width: `${(100 * figure(group.before)) / most}%` }}></span><span class="bar" style=${{ width: `${(100 * figure(group.after)) / most}%` }}></span></span>
        <span class="right">${show(figure(group.before))} → ${show(figure(group.after))}</span>`)}</div>
      ${cost.groups.length > shown.length && html`<p class="quiet">and ${count(cost.groups.length - shown.length)} more groups</p>`}
      ${cost.pairs.filter((pair) => pair.way).slice(0, MOST_BARS).map((pair) => html`<p class="quiet way">${wayOf(pair)}</p>`)}
      <div class="row"><button type="button" class="act" id="begin" onClick=${begin}>Move ${plural(moves.length, "slot")}…</button></div>`}
  </div>`;
}

// How the slots of a pair of groups would move, and what that costs.
function wayOf({ from, to, way }) {
  const how = `Group ${from} to group ${to} by ${way.way === "stream" ? "the stream" : "keys"}: ${way.because}`;
  if (way.seconds === null) return `${how}.`;
  return `${how}; about ${duration(way.seconds)}, ${bytes(way.bytes)}, ${bytes(way.twice_bytes)} in memory twice for ${duration(way.twice_seconds)}, a lock of ${Math.round(1000 * way.lock_seconds)} ms.`;
}

function sentence({ moves, cost }) {
  const what = cost.total.bytes === null ? "" : `, ${plural(cost.total.keys, "key")}, ${bytes(cost.total.bytes)}`;
  const time = cost.seconds === null ? "how long that takes is not known yet" : `that takes about ${duration(cost.seconds)}`;
  return `${plural(moves.length, "slot moves", "slots move")}${what}, between ${plural(cost.pairs.length, "pair")} of groups; ${time}.`;
}

function begin(plan, done) {
  const paused = sections.migration?.paused ? " Moving is paused, so they wait until you resume it." : "";
  ask({
    title: "Begin to move slots?",
    says: [sentence(plan), `Slots move with their keys while clients work; you can pause or cancel at any time.${paused}`, "topom plans once more when it begins; if something has changed meanwhile, the moves differ."],
    button: `Move ${plural(plan.moves.length, "slot")}`,
    run: async () => {
      try {
        return await carryOut(plan, false, done);
      } catch (error) {
        if (error.type !== "UndoesPlan") throw error;
        setTimeout(() => ask({ title: "Undo the last plan?", says: `${error.message}.`, button: "Undo it", run: () => carryOut(plan, true, done) }));
        return "";
      }
    },
  });
}

async function carryOut(plan, confirm, done) {
  const made = await post(`/rebalance?policy=${plan.policy}${confirm ? "&confirm=true" : ""}`);
  done();
  return made.moves.length === plan.moves.length ? "" : `${plural(made.moves.length, "slot")} move now, by a plan made just now.`;
}

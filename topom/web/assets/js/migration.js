// Slots that move: how far, how fast, and why not faster; and what an operator may do about it.

import { html } from "../vendor/preact-htm.js";
import { patch, post } from "./api.js";
import { ask } from "./dialog.js";
import { sections } from "./live.js";
import { Migrators } from "./migrators.js";
import { mayAct } from "./session.js";
import { ago, bytes, count, duration, plural, rate, ranges, took } from "./words.js";

export function Migration() {
  const now = sections.migration;
  if (!now) return html`<p class="quiet">Nothing is known yet.</p>`;
  const under = now.slots_moving + now.slots_pending;
  return html`
    <p id="migration-says">${summary(now, under)}</p>
    ${now.halted && html`<p class="tag waits">${now.halted.what}${now.halted.since ? ` (for ${ago(now.halted.since)})` : ""}</p>`}
    ${mayAct() && html`<${Acts} now=${now} under=${under} />`}
    <ul class="batches">${now.batches.map((batch) => html`<${Batch} key=${`${batch.source}-${batch.target}-${batch.slots}`} batch=${batch} />`)}</ul>
    ${(now.skipped || []).map((one) => html`<p>Slots ${one.slots} step aside: ${one.reason.what}. ${mayAct() && html`<button type="button" onClick=${() => retry(one.slots)}>Try again…</button>`}</p>`)}
    <p class="quiet">Since topom started: ${plural(now.slots_moved, "slot")}, ${plural(now.keys_moved, "key")}, ${bytes(now.bytes_moved)}.</p>
    <${Migrators} />
  `;
}

function summary(now, under) {
  if (!under) return "No slot is on its way.";
  // What is not known any more is gone from the section.
  const left = Number.isFinite(now.remaining_keys) && now.keys_per_second > 0 ? now.remaining_keys / now.keys_per_second : null;
  const rest = left === null ? "" : `; ${left < 1 ? "" : "about "}${duration(left)} left for those under way`;
  return `${plural(now.slots_moving, "slot moves", "slots move")}, ${count(now.slots_pending)} wait; ${rate(now.keys_per_second, "keys")}${rest}.`;
}

function Batch({ batch }) {
  const all = batch.keys_moved + (batch.remaining_keys ?? 0);
  const share = batch.remaining_keys === null ? null : all ? batch.keys_moved / all : 1;
  const label = `Slots ${batch.slots} from ${batch.source ? `group ${batch.source}` : "offline"} to group ${batch.target}`;
  const pacing = batch.pacing;
  return html`<li>
    <div>${label} <span class="tag">${batch.state}</span>${batch.course !== "forward" && html` <span class="tag waits">goes back</span>`}</div>
    <progress max="1" value=${share === null ? undefined : share} aria-label=${label}></progress>
    <div class="quiet">${plural(batch.keys_moved, "key")}, ${bytes(batch.bytes_moved)} moved${batch.remaining_keys !== null ? `, about ${count(batch.remaining_keys)} left` : ""}</div>
    ${pacing && html`<div class="quiet">moves ${Math.round(pacing.speed * 100)}% of the time; p99 ${milliseconds(pacing.source)} at the source, ${milliseconds(pacing.target)} at the target (allowed ${took(pacing.source.allowed_milliseconds)})</div>`}
    ${(batch.reason || pacing?.reason) && html`<p>Why it waits: ${(batch.reason || pacing.reason).what}${batch.reason?.to_do ? `. To do: ${batch.reason.to_do}` : ""}</p>`}
    ${(batch.notes || []).map((note) => html`<p class="quiet">${note}</p>`)}
    ${mayAct() && html`<div class="row"><button type="button" onClick=${() => cancelSlots(batch.slots, label)}>Cancel these…</button></div>`}
  </li>`;
}

const milliseconds = (latency) => (latency.p99_milliseconds === null ? "unknown" : took(latency.p99_milliseconds));

function Acts({ now, under }) {
  const pause = () => ask({
    title: "Pause moving?",
    says: ["Nothing new begins. Of slots that move already, only keys move that clients ask for.", "Clients are served as before. You resume it here."],
    button: "Pause moving",
    run: () => post("/migration/pause").then(() => ""),
  });
  const resume = () => ask({
    title: "Resume moving?",
    says: `Slots that wait begin to move, ${now.settings.parallel_slots} of a pair of groups together.`,
    button: "Resume moving",
    run: () => post("/migration/resume").then(() => ""),
  });
  return html`<div class="row">
    ${now.paused ? html`<button type="button" onClick=${resume}>Resume moving…</button>` : html`<button type="button" onClick=${pause}>Pause moving…</button>`}
    ${under > 0 && html`<button type="button" onClick=${() => cancelSlots(null, "All slots on their way")}>Cancel all…</button>`}
  </div>
  <${Pace} settings=${now.settings} />`;
}

const PACES = [
  ["keys_per_second", "Keys a second", "0: no limit"],
  ["bytes_per_second", "Bytes a second", "0: no limit"],
  ["latency_goal_milliseconds", "p99 to hold, ms", "0: no goal"],
  ["parallel_slots", "Slots together", "of a pair of groups"],
];

function Pace({ settings }) {
  const submit = (event) => {
    event.preventDefault();
    const wanted = {};
    for (const [name] of PACES) {
      const value = Number(event.target.elements[name].value);
      if (Number.isFinite(value) && value !== settings[name]) wanted[name] = value;
    }
    const says = PACES.filter(([name]) => name in wanted).map(([name, label]) => `${label}: ${settings[name]} becomes ${wanted[name]}.`);
    if (!says.length) return;
    ask({ title: "Change the pace?", says: [...says, "It holds from the next step on, and over restarts of topom."], button: "Change it", run: () => patch("/migration", wanted).then(() => "") });
  };
  return html`<details><summary>Pace</summary><form onSubmit=${submit}>
    ${PACES.map(([name, label, hint]) => html`<div class="row"><label>${label} <input name=${name} type="number" min="0" step="any" inputmode="decimal" required defaultValue=${settings[name]} key=${`${name}${settings[name]}`} /></label><span class="quiet">${hint}</span></div>`)}
    <button>Change the pace…</button>
  </form></details>`;
}

function cancelSlots(slots, label) {
  ask({
    title: "Cancel these moves?",
    says: [`${label}: they stop, and keys that have moved go back to where they came from.`, "A slot whose keys have all moved stays where it is. Clients are served as before."],
    button: "Cancel and go back",
    run: async () => {
      const done = await post("/migration/cancel", slots === null ? {} : { slots });
      const said = [];
      if (done.ended.length) said.push(`${plural(done.ended.length, "slot")} had moved nothing and stay`);
      if (done.returning.length) said.push(`${plural(done.returning.length, "slot")} go back (${ranges(done.returning)})`);
      if (done.too_late.length) said.push(`${plural(done.too_late.length, "slot")} had moved already`);
      return said.length ? `${said.join("; ")}.` : "Nothing was on its way.";
    },
  });
}

function retry(slots) {
  ask({ title: "Try again?", says: `Slots ${slots} go on at once.`, button: "Try again", run: () => post("/migration/retry", { slots }).then(() => "") });
}

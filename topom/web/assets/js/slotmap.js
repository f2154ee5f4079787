// The map of all slots on a canvas: each a cell, coloured by its group or by its heat. A slot that moves has the colour
// of its target in one half, and dots travel from its source's mark to its target's. Only cells that changed are drawn.

import { html, render, useState } from "../vendor/preact-htm.js";
import * as colours from "./colours.js";
import { soon } from "./frames.js";
import { heat, listen, owner, sections, slots, stateName } from "./live.js";
import { bytes, count, plural, rate } from "./words.js";

const HEIGHT = 300; // of the cells, at most, in CSS pixels
const MARKS = 26; // the height of the groups' marks below them
const MARK_HEIGHT = 16;
const MOST_MARKS = 64;
const MOST_TRAVELLERS = 48;
const TRAVEL_MILLISECONDS = 1400;
const MOST_LEGEND = 64;
const HEAT_STEPS = [0, 0.05, 0.2, 0.5, 1]; // shares of the most that the legend shows

const still = matchMedia("(prefers-reduced-motion: reduce)");

export function slotMap(place) {
  const map = {
    place,
    by: "group",
    cell: 8,
    columns: 1,
    rows: 1,
    next: 0, // the next slot of a drawing of all
    all: false,
    changed: new Set(),
    chosen: -1,
    scale: 1,
  };
  const draw = () => render(html`<${Frame} map=${map} />`, place);
  draw();
  map.base = place.querySelector("canvas.cells");
  map.over = place.querySelector("canvas.over");
  map.draw = draw;
  map.base.addEventListener("pointermove", (event) => choose(map, slotAt(map, event)));
  map.base.addEventListener("pointerleave", () => choose(map, -1));
  map.base.addEventListener("keydown", (event) => onKey(map, event));
  new ResizeObserver(() => redraw(map)).observe(place);
  colours.onScheme(() => redraw(map));
  listen(["slots"], (changed) => {
    const numbers = changed.get("slots");
    if (numbers === null) redraw(map);
    else {
      numbers.forEach((slot) => map.changed.add(slot));
      soon("slot cells", (until) => drawCells(map, until));
    }
    soon("slot legend", draw);
    travel(map);
  });
  listen(["heat"], () => map.by !== "group" && redraw(map));
  listen(["groups"], () => soon("slot legend", draw));
  redraw(map);
  travel(map);
}

function Frame({ map }) {
  const [by, setBy] = useState("group");
  const known = Object.keys(heat);
  const choose_ = (event) => {
    map.by = event.target.value;
    setBy(map.by);
    redraw(map);
  };
  const counts = countSlots();
  const summary = !slots.count ? "Nothing is known yet." : `${plural(slots.count, "slot")} in ${plural(counts.size - (counts.has(0) ? 1 : 0), "group")}; ` +
    `${counts.get(0) ? `${count(counts.get(0))} offline; ` : ""}${counts.moving ? `${count(counts.moving)} on their way` : "none on its way"}`;
  return html`
    <div class="row">
      <label>Colour by
        <select id="map-by" onChange=${choose_} value=${by}>
          <option value="group">group</option>
          <option value="bytes" disabled=${!known.includes("bytes")}>bytes${known.includes("bytes") ? "" : " (not measured)"}</option>
          <option value="load" disabled=${!known.includes("load")}>load${known.includes("load") ? "" : " (not measured)"}</option>
        </select>
      </label>
      <span class="quiet" id="map-summary">${summary}</span>
    </div>
    <div class="map">
      <canvas class="cells" tabindex="0" role="application" aria-roledescription="map of slots" aria-label="Map of slots; arrow keys choose one" aria-describedby="map-says"></canvas>
      <canvas class="over" aria-hidden="true"></canvas>
    </div>
    <p id="map-says" aria-live="polite">${says(map)}</p>
    ${by === "group"
      ? html`<ul class="legend" id="map-legend" tabindex="0" aria-label="Groups">${legend(counts)}</ul>`
      : html`<p class="quiet" id="heat-legend">nothing ${HEAT_STEPS.map((share) => html`<span class="swatch" style=${{ backgroundColor: colours.ofHeat(Math.sqrt(share)) }}></span>`)} ${most(by)}, the most that a slot has</p>`}
  `;
}

function countSlots() {
  const counts = new Map();
  counts.moving = 0;
  for (let slot = 0; slot < slots.count; slot += 1) {
    const group = owner(slot);
    counts.set(group, (counts.get(group) || 0) + 1);
    if (slots.target[slot] >= 0) counts.moving += 1;
  }
  return counts;
}

function legend(counts) {
  const groups = [...counts.keys()].sort((a, b) => a - b);
  const shown = groups.slice(0, MOST_LEGEND);
  const more = groups.length - shown.length;
  return html`${shown.map(
    (id) => html`<li key=${id} data-group=${id}><span class="swatch" style=${{ backgroundColor: colours.ofGroup(id) }}></span>${id ? `group ${id}` : "offline"}: ${count(counts.get(id))}</li>`,
  )}${more > 0 && html`<li>and ${count(more)} more groups</li>`}`;
}

const unit = (by, value) => (by === "bytes" ? bytes(value) : rate(value, "requests"));

function most(by) {
  return unit(by, (heat[by] || []).reduce((found, value) => Math.max(found, value || 0), 0));
}

function says(map) {
  const slot = map.chosen;
  if (slot < 0 || slot >= slots.count) return "Point at a slot, or choose one with the arrow keys.";
  const of = owner(slot);
  const state = stateName(slot);
  const way = state ? `, ${state}, on its way from ${name(slots.group[slot])} to group ${slots.target[slot]}` : "";
  const measured = Object.entries(heat).filter(([, values]) => values[slot] !== null && values[slot] !== undefined);
  const figures = measured.map(([by, values]) => `, ${unit(by, values[slot])}`).join("");
  return `Slot ${slot}: ${name(of)}${way}${figures}.`;
}

const name = (group) => (group ? `group ${group}` : "offline");

function choose(map, slot) {
  if (slot === map.chosen) return;
  map.chosen = slot;
  soon("slot overlay", () => overlay(map, performance.now()));
  soon("slot legend", map.draw);
}

function onKey(map, event) {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -map.columns, ArrowDown: map.columns }[event.key];
  let to = map.chosen;
  if (step !== undefined) to = map.chosen < 0 ? 0 : map.chosen + step;
  else if (event.key === "Home") to = 0;
  else if (event.key === "End") to = slots.count - 1;
  else if (event.key === "Escape") to = -1;
  else return;
  event.preventDefault();
  if (to < slots.count && (to >= 0 || event.key === "Escape")) choose(map, to);
}

function slotAt(map, event) {
  const box = map.base.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / map.cell);
  const row = Math.floor((event.clientY - box.top) / map.cell);
  const slot = row * map.columns + column;
  return column >= 0 && column < map.columns && slot < slots.count ? slot : -1;
}

function redraw(map) {
  const width = map.base.parentElement.clientWidth;
  if (!width || !slots.count) return;
  let cell = Math.floor(Math.sqrt((width * HEIGHT) / slots.count));
  cell = Math.max(2, Math.min(18, cell));
  map.cell = cell;
  map.columns = Math.max(1, Math.floor(width / cell));
  map.rows = Math.ceil(slots.count / map.columns);
  map.scale = Math.ceil(window.devicePixelRatio || 1); // whole, so that cells end where pixels do
  const height = map.rows * cell + MARKS;
  for (const canvas of [map.base, map.over]) {
    if (canvas.width !== Math.round(width * map.scale) || canvas.height !== Math.round(height * map.scale)) {
      canvas.width = Math.round(width * map.scale);
      canvas.height = Math.round(height * map.scale);
      canvas.style.height = `${height}px`;
    }
  }
  Object.assign(map.base.dataset, { cell, columns: map.columns, slots: slots.count });
  map.top = Math.max(1, (heat[map.by] || []).reduce((found, value) => Math.max(found, value || 0), 0));
  map.all = true;
  map.next = 0;
  map.changed.clear();
  delete map.base.dataset.drawn;
  soon("slot cells", (until) => drawCells(map, until));
}

// Draw cells until the frame's time is over; gives whether there are more.
function drawCells(map, until) {
  const context = map.base.getContext("2d");
  context.setTransform(map.scale, 0, 0, map.scale, 0, 0);
  let number = 0;
  if (map.all) {
    if (map.next === 0) {
      context.clearRect(0, 0, map.base.width, map.base.height);
      marks(map, context);
    }
    while (map.next < slots.count) {
      drawCell(map, context, map.next);
      map.next += 1;
      number += 1;
      if (number % 64 === 0 && performance.now() >= until) return true;
    }
    map.all = false;
  }
  for (const slot of map.changed) {
    drawCell(map, context, slot);
    map.changed.delete(slot);
    number += 1;
    if (number % 64 === 0 && performance.now() >= until) return true;
  }
  if (!map.base.dataset.drawn) performance.mark("slots-drawn");
  map.base.dataset.drawn = String(Number(map.base.dataset.drawn || 0) + 1);
  return false;
}

function drawCell(map, context, slot) {
  const { cell } = map;
  const gap = cell >= 5 ? 1 : 0;
  const x = (slot % map.columns) * cell;
  const y = Math.floor(slot / map.columns) * cell;
  const size = cell - gap;
  if (map.by === "group") context.fillStyle = colours.ofGroup(owner(slot));
  else {
    const value = heat[map.by]?.[slot];
    context.fillStyle = colours.ofHeat(value === null || value === undefined ? null : Math.sqrt(value / map.top));
  }
  context.fillRect(x, y, size, size);
  if (slots.target[slot] >= 0) {
    const other = slots.state[slot] >= 4 ? slots.group[slot] : slots.target[slot];
    if (map.by === "group") {
      context.fillStyle = colours.ofGroup(other);
      context.fillRect(x, y + Math.ceil(size / 2), size, Math.floor(size / 2));
    }
    context.strokeStyle = colours.isDark() ? "#ffffff" : "#000000";
    context.strokeRect(x + 0.5, y + 0.5, Math.max(1, size - 1), Math.max(1, size - 1));
  }
}

// The groups between which dots travel, in a line below the cells.
function shownGroups() {
  return Object.keys(sections.groups || {}).map(Number).sort((a, b) => a - b);
}

function markAt(map, groups, id) {
  const at = groups.indexOf(id);
  const width = map.columns * map.cell;
  return { x: ((at < 0 ? groups.length : at) + 0.5) * (width / (groups.length + 1)), y: map.rows * map.cell + MARKS / 2 + 2 };
}

function marks(map, context) {
  const groups = shownGroups();
  if (groups.length > MOST_MARKS) return;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const id of groups) {
    const { x, y } = markAt(map, groups, id);
    context.fillStyle = colours.ofGroup(id);
    context.fillRect(x - 14, y - MARK_HEIGHT / 2, 28, MARK_HEIGHT);
    context.fillStyle = colours.onGroup(id);
    context.fillText(String(id), x, y);
  }
}

// Let dots travel while slots move.
function travel(map) {
  if (map.travelling) return;
  map.travelling = true;
  const step = () => {
    if (!hasTravellers() || still.matches) {
      map.travelling = false;
      soon("slot overlay", () => overlay(map, performance.now()));
      return;
    }
    soon("slot overlay", () => overlay(map, performance.now()));
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}

const hasTravellers = () => slots.state.some((state) => state > 1);

function overlay(map, now) {
  const context = map.over.getContext("2d");
  context.setTransform(map.scale, 0, 0, map.scale, 0, 0);
  context.clearRect(0, 0, map.over.width, map.over.height);
  if (map.chosen >= 0 && map.chosen < slots.count) {
    context.strokeStyle = colours.isDark() ? "#ffb266" : "#b34700";
    context.lineWidth = 2;
    const x = (map.chosen % map.columns) * map.cell;
    const y = Math.floor(map.chosen / map.columns) * map.cell;
    context.strokeRect(x - 1, y - 1, map.cell + 1, map.cell + 1);
  }
  if (still.matches) return;
  const groups = shownGroups();
  let drawn = 0;
  for (let slot = 0; slot < slots.count && drawn < MOST_TRAVELLERS; slot += 1) {
    if (slots.state[slot] <= 1) continue;
    drawn += 1;
    const share = ((now + slot * 97) % TRAVEL_MILLISECONDS) / TRAVEL_MILLISECONDS;
    const from = markAt(map, groups, slots.group[slot]);
    const to = markAt(map, groups, slots.target[slot]);
    const radius = Math.max(2, map.cell / 3);
    from.y -= MARK_HEIGHT / 2 + radius; // no dot hides a mark's number
    to.y -= MARK_HEIGHT / 2 + radius;
    const over = { x: (slot % map.columns) * map.cell + map.cell / 2, y: Math.floor(slot / map.columns) * map.cell };
    const left = (1 - share) ** 2;
    const middle = 2 * share * (1 - share);
    context.fillStyle = colours.ofGroup(slots.target[slot]);
    context.beginPath();
    context.arc(
      left * from.x + middle * over.x + share ** 2 * to.x,
      left * from.y + middle * over.y + share ** 2 * to.y,
      radius,
      0,
      7,
    );
    context.fill();
  }
}

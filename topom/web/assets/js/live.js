// The picture of the cluster, kept up to date by topom's live stream. Parts say which sections they show, and are told
// when these have changed.

import { Refused, refusal } from "./api.js";

const SILENT_MILLISECONDS = 35000; // topom sends something each ten seconds
const RETRY_MILLISECONDS = [500, 1000, 2000, 4000, 8000, 15000];
const MOST_EVENTS = 1000;
const STATES = ["", "pending", "copying", "preparing", "prepared", "migrating", "finished"];

// Sections as topom sends them: `cluster`, `problems`, `groups`, `figures`, `proxies`, `migrators`, `migration`, `sizes`,
// `load`, `notable`, `decision`.
export const sections = {};
// Of each slot: the group that has it, the group that it is on its way to (-1: none), and the number of its state.
export const slots = { count: 0, group: new Int32Array(0), target: new Int32Array(0), state: new Uint8Array(0) };
export const heat = {};
export let events = [];
// What the page says of its connection; empty while all is well.
export const connection = { open: false, says: "Connecting to topom…", full: false };

const listeners = new Set();
const pictures = { number: 0, at: 0 };

export const stateName = (slot) => STATES[slots.state[slot]];
// The group whose servers have the slot's keys now.
export const owner = (slot) => (slots.state[slot] >= 4 ? slots.target[slot] : slots.group[slot]);

// Call `tell(changed)` each time some of these names have changed; `changed` has the slots' numbers for "slots", or null
// if all are to be drawn anew.
export function listen(names, tell) {
  const entry = { names, tell };
  listeners.add(entry);
  return () => listeners.delete(entry);
}

export function take(message, isWhole) {
  const changed = new Map();
  for (const [name, content] of Object.entries(message)) {
    if (name === "slots") changed.set(name, takeSlots(content, isWhole));
    else if (name === "heat") {
      Object.assign(heat, content);
      changed.set(name, null);
    } else if (name === "events") {
      events = [...(isWhole ? [] : events), ...content].slice(-MOST_EVENTS);
      changed.set(name, null);
    } else {
      const section = isWhole ? {} : { ...sections[name] };
      for (const [key, value] of Object.entries(content)) {
        if (value === null && !isWhole) delete section[key];
        else section[key] = value;
      }
      sections[name] = section;
      changed.set(name, null);
    }
  }
  pictures.number += 1;
  tell(changed);
}

// Have parts drawn again that show how long something lasts.
export const nudge = (names) => tell(new Map(names.map((name) => [name, null])));

function takeSlots(runs, isWhole) {
  if (isWhole) {
    slots.count = runs.reduce((most, run) => Math.max(most, run[0] + run[1]), 0);
    slots.group = new Int32Array(slots.count);
    slots.target = new Int32Array(slots.count).fill(-1);
    slots.state = new Uint8Array(slots.count);
  }
  const numbers = [];
  for (const [first, many, group, state = "", target = -1] of runs) {
    slots.group.fill(group, first, first + many);
    slots.target.fill(target, first, first + many);
    slots.state.fill(STATES.indexOf(state), first, first + many);
    if (!isWhole) for (let slot = first; slot < first + many; slot += 1) numbers.push(slot);
  }
  return isWhole ? null : numbers;
}

function tell(changed) {
  for (const entry of listeners) {
    const name = entry.names.find((one) => changed.has(one));
    if (name !== undefined) entry.tell(changed);
  }
}

function say(open, says, full = false) {
  if (connection.open === open && connection.says === says) return;
  Object.assign(connection, { open, says, full });
  tell(new Map([["connection", null]]));
}

// Follow topom until `signal` is aborted. `unknown` is called when topom wants a token.
export async function follow(signal, unknown) {
  let failures = 0;
  while (!signal.aborted) {
    let why;
    const before = pictures.number;
    try {
      why = await stream(signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && error.status === 401) {
        say(false, "");
        unknown();
        return;
      }
      why = error instanceof Refused && error.status ? error.message : "The connection to topom is lost";
    }
    if (signal.aborted) return;
    failures = pictures.number > before ? 0 : failures + 1;
    const rest = RETRY_MILLISECONDS[Math.min(failures, RETRY_MILLISECONDS.length - 1)] * (0.75 + Math.random() / 2);
    const shown = pictures.at ? ` What you see is of ${new Date(pictures.at).toLocaleTimeString()}.` : "";
    say(false, `${why}. The page tries again by itself.${shown}`);
    await new Promise((done) => setTimeout(done, rest));
  }
}

// Read one stream to its end; gives why it ended, as a sentence without a full stop.
async function stream(signal) {
  const ended = new AbortController();
  const stop = () => ended.abort();
  signal.addEventListener("abort", stop);
  let watch = setTimeout(stop, SILENT_MILLISECONDS);
  let why = "The connection to topom is lost";
  try {
    const answer = await fetch("/api/v1/live", {
      headers: { Accept: "text/event-stream" },
      credentials: "same-origin",
      cache: "no-store",
      signal: ended.signal,
    });
    if (!answer.ok) throw await refusal(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let parts = [];
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return why;
      clearTimeout(watch);
      watch = setTimeout(stop, SILENT_MILLISECONDS);
      pictures.at = Date.now();
      parts.push(value);
      // A message ends with an empty line, which may come in two pieces.
      const last = parts.length > 1 ? parts[parts.length - 2].slice(-1) + value : value;
      if (!last.includes("\n\n")) continue;
      const text = parts.join("");
      const end = text.lastIndexOf("\n\n");
      parts = [text.slice(end + 2)];
      for (const message of text.slice(0, end).split("\n\n")) why = read(message) || why;
    }
  } finally {
    clearTimeout(watch);
    signal.removeEventListener("abort", stop);
    ended.abort();
  }
}

// Take one server-sent event; gives why the stream is about to end, if it says so.
function read(message) {
  let name = "message";
  const data = [];
  for (const line of message.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  if (!data.length) return "";
  const content = JSON.parse(data.join("\n"));
  if (name === "leader") return content.url ? `Another topom leads, at ${content.url}` : "No topom leads at the moment";
  if (name === "picture" || name === "changes") {
    take(content, name === "picture");
    say(true, "");
  }
  return "";
}

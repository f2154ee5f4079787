// Numbers, times and roles in words.

const COUNT = new Intl.NumberFormat("en");
const UNITS = ["byte", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function count(number) {
  return number === null || number === undefined ? "unknown" : COUNT.format(Math.round(number));
}

export function bytes(number) {
  if (number === null || number === undefined) return "unknown";
  let unit = 0;
  while (number >= 1024 && unit < UNITS.length - 1) {
    number /= 1024;
    unit += 1;
  }
  const said = number < 10 && unit ? number.toFixed(1) : Math.round(number);
  return `${said} ${UNITS[unit]}${unit || said === 1 ? "" : "s"}`;
}

// How often something happens, alone ("9/s") or with what it is ("9 keys a second").
export function rate(number, what = "") {
  if (number === null || number === undefined) return "unknown";
  const few = number > 0 && number < 0.1;
  const said = few ? "under 0.1" : number < 10 && !Number.isInteger(number) ? number.toFixed(1) : count(number);
  return what ? `${said} ${said === "1" ? what.replace(/s$/, "") : what} a second` : `${said}/s`;
}

// How long a request took.
export function took(milliseconds) {
  if (milliseconds >= 1000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return `${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  if (seconds < 1) return "under 1 s";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

// How long ago a time was; empty for one that is not known.
export function ago(at) {
  return at ? duration(Math.max(0, Date.now() / 1000 - at)) : "";
}

export function clock(at) {
  const time = new Date(at * 1000);
  const today = new Date().toDateString() === time.toDateString();
  return today ? time.toLocaleTimeString() : time.toLocaleString();
}

export function plural(number, one, more = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : more}`;
}

// How topom gives slots: ascending numbers as ranges.
export function ranges(numbers) {
  const found = [];
  for (const number of numbers) {
    const last = found[found.length - 1];
    if (last && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

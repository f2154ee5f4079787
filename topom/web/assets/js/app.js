// Puts the page together: who looks, the live picture, and the parts that show it. Each part is drawn by itself when one
// of its sections has changed, in a frame that has time for it.

import { html, render } from "../vendor/preact-htm.js";
import { login, logout } from "./api.js";
import { Bar } from "./bar.js";
import { Events } from "./events.js";
import { spent, soon } from "./frames.js";
import { Groups } from "./groups.js";
import { Health } from "./health.js";
import { connection, follow, listen, nudge } from "./live.js";
import { Load } from "./load.js";
import { Migration } from "./migration.js";
import { Placement } from "./placement.js";
import { Proxies } from "./proxies.js";
import { Rebalance } from "./rebalance.js";
import { me, showLogin, tokenBehind, tokenOfAddress, whoAmI } from "./session.js";
import { Sizes } from "./sizes.js";
import { slotMap } from "./slotmap.js";

const AGAIN_MILLISECONDS = 10000; // "for 5 min" has to grow also while nothing else changes

const PARTS = [
  ["bar", Bar, ["cluster", "connection"]],
  ["health", Health, ["problems", "cluster", "connection"]],
  ["migration", Migration, ["migration", "migrators", "cluster"]],
  ["rebalance", Rebalance, ["cluster", "decision"]],
  ["groups", Groups, ["groups", "figures", "load"]],
  ["proxies", Proxies, ["proxies", "load"]],
  ["placement", Placement, ["groups"]],
  ["load", Load, ["load", "notable"]],
  ["sizes", Sizes, ["sizes"]],
  ["events", Events, ["events"]],
];

let following = null;
let shown = false;

function showParts() {
  document.getElementById("parts").hidden = false;
  if (shown) return PARTS.forEach(([, , names]) => nudge(names));
  shown = true;
  for (const [name, Part, names] of PARTS) {
    const place = document.querySelector(`#${name} > .root`) || document.getElementById(name);
    const draw = () => {
      if (!document.getElementById("parts").hidden) render(html`<${Part} leave=${leave} />`, place);
    };
    listen(names, () => soon(name, draw));
    soon(name, draw);
  }
  slotMap(document.querySelector("#slots > .root"));
  setInterval(() => nudge(["cluster"]), AGAIN_MILLISECONDS);
}

listen(["connection"], () => {
  const place = document.getElementById("connection");
  place.className = connection.says ? "notice" : "";
  place.textContent = connection.says;
  document.documentElement.dataset.connection = connection.open ? "open" : "lost";
});

async function begin() {
  try {
    await whoAmI();
  } catch (error) {
    if (error.status === 401) return askForToken();
    // The stream says what is wrong, and tries again.
  }
  document.documentElement.dataset.role = me.role;
  showParts();
  following = new AbortController();
  follow(following.signal, askForToken);
}

function askForToken(refused = "") {
  following?.abort();
  document.getElementById("parts").hidden = true;
  render(null, document.getElementById("bar"));
  showLogin(document.getElementById("login"), begin, refused);
}

async function leave() {
  following?.abort();
  try {
    await logout();
  } catch {
    // The session ends by itself.
  }
  askForToken();
}

async function start() {
  const token = tokenOfAddress();
  if (token !== null) {
    try {
      await login(token);
    } catch (error) {
      return askForToken(`${error.message}.`);
    }
  }
  return begin();
}

// A link that is opened where the page is already shown changes only what stands behind `#`.
addEventListener("hashchange", () => tokenBehind() !== null && location.reload());

// For those who look at what drawing takes.
window.slotferry = { spent };
start();

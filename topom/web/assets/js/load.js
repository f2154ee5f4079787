// What is busy: the slots and the keys with the most requests.

import { html } from "../vendor/preact-htm.js";
import { sections } from "./live.js";

export function Load() {
  if (!sections.load) return html`<p class="quiet">Load is not measured.</p>`;
  return html`<p class="quiet">Load is measured.</p>`;
}

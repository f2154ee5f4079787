// Asks once, in words, before anything is done. Escape closes; the browser gives the focus back to where it was.

import { html, render, useState } from "../vendor/preact-htm.js";

const place = document.getElementById("dialogs");
let opened = 0;

// Ask, and do it if the answer is yes. `says` is what will happen, in sentences; `run` does it and may give a sentence
// about what came of it.
export function ask({ title, says, button, run }) {
  opened += 1;
  const close = () => {
    const dialog = place.querySelector("dialog");
    if (dialog?.open) dialog.close();
    render(null, place);
  };
  render(html`<${Question} key=${opened} ...${{ title, says, button, run, close }} />`, place);
  const dialog = place.querySelector("dialog");
  dialog.addEventListener("close", close, { once: true });
  dialog.showModal();
}

function Question({ title, says, button, run, close }) {
  const [at, set] = useState({ step: "asked", text: "" });
  const go = async (event) => {
    event.preventDefault();
    set({ step: "runs", text: "" });
    try {
      const text = await run();
      if (text) set({ step: "done", text });
      else close();
    } catch (error) {
      set({ step: "refused", text: `It was not done: ${error.message}.` });
    }
  };
  return html`<dialog aria-labelledby="question">
    <form onSubmit=${go}>
      <h2 id="question">${title}</h2>
      ${[says].flat().map((sentence) => html`<p>${sentence}</p>`)}
      <p role="status" class=${at.step === "refused" ? "error" : ""}>${at.text}</p>
      <div class="row">
        ${at.step !== "done" && html`<button class="act" disabled=${at.step === "runs"}>${button}</button>`}
        <button type="button" onClick=${close}>${at.step === "done" ? "Close" : "Leave it"}</button>
      </div>
    </form>
  </dialog>`;
}

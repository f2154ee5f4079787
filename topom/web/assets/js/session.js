// Who looks: the role, and the form that takes a token.

import { html, render, useState } from "../vendor/preact-htm.js";
import { get, login } from "./api.js";

export const me = { name: "", role: "" };

// Viewers see no acts.
export const mayAct = () => me.role === "operator";

// A link may bring a token behind `#`, where no server and no log sees it.
export const tokenBehind = () => new URLSearchParams(location.hash.slice(1)).get("token");

// It is used once and leaves the address.
export function tokenOfAddress() {
  const found = tokenBehind();
  if (found !== null) history.replaceState(null, "", location.pathname + location.search);
  return found;
}

export async function whoAmI() {
  Object.assign(me, await get("/me"));
}

// Show the form until a token is taken; then call `done`.
export function showLogin(place, done, refused = "") {
  place.hidden = false;
  render(
    html`<${Form} refused=${refused} done=${() => {
      place.hidden = true;
      render(null, place);
      done();
    }} />`,
    place,
  );
  place.querySelector("input").focus();
}

function Form({ done, refused }) {
  const [at, set] = useState({ runs: false, says: refused });
  const send = async (event) => {
    event.preventDefault();
    const field = event.target.elements.token;
    set({ runs: true, says: "" });
    try {
      await login(field.value.trim());
      done();
    } catch (error) {
      set({ runs: false, says: `${error.message}.` });
      field.focus();
    }
  };
  return html`<form onSubmit=${send}>
    <h2>Log in</h2>
    <p>The page needs a token of topom. The first one is in the file <code>token</code> of its data folder.</p>
    <label for="token">Token</label>
    <input id="token" name="token" type="password" autocomplete="current-password" required aria-describedby="login-says" />
    <p id="login-says" role="alert" class="error">${at.says}</p>
    <button class="act" disabled=${at.runs}>Log in</button>
  </form>`;
}

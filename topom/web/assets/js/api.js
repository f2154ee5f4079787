// Requests to topom. A refusal is an error with topom's own sentence.

const BASE = "/api/v1";
const SECONDS = 30;

export class Refused extends Error {
  // `type` is topom's name for it, for programs.
  constructor(status, message, type = "") {
    super(message);
    Object.assign(this, { status, type });
  }
}

export async function refusal(answer) {
  let said = null;
  try {
    said = await answer.json();
  } catch {
    // Something in between answered.
  }
  return new Refused(answer.status, said?.message || `topom answers with status ${answer.status}`, said?.error);
}

async function send(method, path, body) {
  const headers = { Accept: "application/json" };
  // Another site's page cannot send this header.
  if (method !== "GET") headers["X-Slotferry-Request"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      signal: AbortSignal.timeout(SECONDS * 1000),
    });
  } catch {
    throw new Refused(0, "topom does not answer; whether it was done is not known if this was a change");
  }
  if (!answer.ok) throw await refusal(answer);
  return answer.status === 204 ? null : answer.json();
}

export const get = (path) => send("GET", BASE + path);
export const post = (path, body) => send("POST", BASE + path, body);
export const patch = (path, body) => send("PATCH", BASE + path, body);
export const login = (token) => send("POST", "/login", { token });
export const logout = () => send("POST", "/logout");

/** Talks to the server: three requests with one answer each, and one that is answered line by line. */

import { t } from "./words.js";

/** What went wrong, for people. */
export class Trouble extends Error {
  /**
   * @param {string} message
   * @param {"offline"|"refused"|"busy"|"broken"} kind "refused": the request is wrong, so trying again does not help.
   */
  constructor(message, kind) {
    super(message);
    this.kind = kind;
  }

  get retryable() {
    return this.kind !== "refused";
  }
}

async function ask(path, body, signal) {
  const question = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, { ...question, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble(t("offline"), "offline");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

/** The content of an answer; one that breaks off, or that is not the server's (a proxy's page), is as good as none. */
async function content(response, kind = "json") {
  try {
    return await response[kind]();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble(t("offline"), "offline");
  }
}

async function refusal(response) {
  const reason = await response.json().then((answer) => String(answer.error ?? ""), () => "");
  if (response.status === 503 || response.status === 429) return new Trouble(reason || t("busy"), "busy");
  if (response.status >= 500) return new Trouble(reason || t("failed", { status: response.status }), "broken");
  return new Trouble(reason || t("refused", { status: response.status }), "refused");
}

/** The games and policies on offer. */
export const offers = async () => content(await ask("/api/offers"));

/** The position after `moves` from `start`, its legal moves and its drawing. */
export const position = async (question, signal) => content(await ask("/api/position", question, signal));

/** The game as a file: its bytes and the name that the server gives it. */
export async function exported(question) {
  const response = await ask("/api/export", question);
  const named = /filename="?([^";]+)"?/.exec(response.headers.get("Content-Disposition") ?? "");
  return { blob: await content(response, "blob"), name: named ? named[1] : `game${question.format}` };
}

/** The moves of a pasted game: `{start, moves, players, result, date}`. */
export const imported = async (game, text) => content(await ask("/api/import", { game, text }));

/** A position that is set up: `{cells, text, wrong, svg}`, and what may be put where if it is asked for by its text. */
export const edited = async (question) => content(await ask("/api/edit", question));

/**
 * A policy's answer, line by line as the server sends it: each denoising step, then the decision.
 *
 * @yields {Object} a parsed line: `{step, ...}` or `{decision}`
 * @throws {Trouble} refused, busy, offline, or broken off before the decision
 */
export async function* decide(question, signal) {
  let decided = false;
  for await (const line of lines("/api/decide", question, signal)) {
    decided ||= line.decision !== undefined;
    yield line;
  }
  if (!decided) throw new Trouble(t("cut"), "offline");
}

/** The dream that answers a question, as an animation: its bytes and a name. */
export async function animated(question) {
  for await (const { gif, name } of lines("/api/animate", question)) {
    return { blob: new Blob([Uint8Array.from(atob(gif), (letter) => letter.charCodeAt(0))], { type: "image/gif" }), name };
  }
  throw new Trouble(t("cut"), "offline");
}

async function* lines(path, question, signal) {
  const response = await ask(path, question, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Trouble(t("cut"), "offline");
    }
    if (part.done) break;
    const whole = (rest + part.value).split("\n");
    rest = whole.pop();
    for (const line of whole.filter((text) => text.trim())) {
      const parsed = JSON.parse(line);
      if (parsed.error !== undefined) throw new Trouble(String(parsed.error), "broken");
      yield parsed;
    }
  }
}

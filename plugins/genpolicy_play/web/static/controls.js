/** Buttons, fields and switches of the page: showing the state in them, and listening to them. */

import * as server from "./api.js";
import { byId, canShow, download, el } from "./dom.js";
import { listenToKeys } from "./keys.js";
import { sameMoves } from "./line.js";
import { showMoves } from "./moves.js";
import { sound } from "./sound.js";
import { HUMAN, keep } from "./store.js";
import { language, languages, speak, t } from "./words.js";

/** Show the state in every control. */
export function dress(page) {
  const { state } = page;
  document.documentElement.dataset.theme = state.theme;
  byId("theme").title = t("theme.is", { theme: t(`theme.${state.theme}`) });
  byId("arrows").checked = state.arrows;
  byId("always").checked = state.always;
  byId("shortcuts").checked = state.shortcuts;
  byId("sounds").checked = state.sounds;
  byId("seed").value = String(state.seed);
  byId("format").replaceChildren(...(page.game.file_suffixes ?? []).map((suffix) =>
    el("option", { value: suffix, text: suffix.slice(1).toUpperCase() })));
  for (const id of ["format", "export"]) byId(id).disabled = !(page.game.file_suffixes ?? []).length;
  byId("notes").replaceChildren(...(page.offers.notes ?? []).map((note) => el("p", { text: note, lang: "en" })));
  page.columns.show();
}

/** Show what went wrong with the position and offer a way out; null hides it. */
export function showTrouble(page, error) {
  byId("trouble").hidden = !error;
  if (!error) return;
  if (!(error instanceof server.Trouble)) throw error;
  byId("trouble").querySelector("span").textContent = error.message;
  byId("trouble").querySelector("button").textContent = t(error.retryable ? "retry" : "restart");
  page.refused = !error.retryable;
}

/** Listen to every control. */
export function wire(page) {
  const click = (id, act) => byId(id).addEventListener("click", act);
  const change = (id, act) => byId(id).addEventListener("change", act);
  click("skip", (event) => { event.preventDefault(); page.board.focus(); });
  click("undo", () => page.undo());
  click("redo", () => page.redo());
  click("former", () => page.former());
  click("flip", () => page.flip());
  click("new", () => page.newGame());
  click("edit-open", () => page.edit());
  click("theme", () => turnTheme(page));
  const other = languages[(languages.findIndex(({ code }) => code === language) + 1) % languages.length];
  Object.assign(byId("language"), { textContent: canShow(other.name) ? other.name : other.code.toUpperCase(), lang: other.code });
  click("language", () => speak(other.code));
  click("help-open", () => byId("help").showModal());
  click("export", () => save(page));
  click("copy", () => copy(page));
  click("link", () => copyText(location.href, t("link.done"), location.href));
  click("look", () => page.lookAll());
  click("go", () => { page.state.held = false; page.refresh({ quiet: true }); });
  click("hold", () => { page.clock.stop(); page.state.held = true; page.refresh({ quiet: true }); });
  byId("trouble").querySelector("button").addEventListener("click", () => {
    if (!page.refused) return page.refresh();
    Object.assign(page.state, { start: null, moves: [], labels: [], turns: [], ply: 0, former: null, spent: [], since: null });
    keep(page.state);
    return location.reload(); // the server may have been started again and offer other games
  });
  byId("typed").addEventListener("submit", (event) => typeMove(page, event));
  byId("move").addEventListener("input", () => complain(""));
  for (const id of ["near", "far"]) {
    byId(`${id}-player`).addEventListener("change", (event) => page.setSide(Number(byId(id).dataset.player), event.target.value));
  }
  change("add", (event) => {
    const id = event.target.value;
    if (!id) return;
    page.columns.makeRoom(id);
    page.columns.touched = id;
    page.columns.watch([...page.state.watched, id]);
    page.look(id);
  });
  change("codes", (event) => {
    page.state.codes = event.target.checked;
    keep(page.state);
    showMoves(page);
    page.columns.show();
    for (const column of page.columns.all.values()) column.rewrite();
  });
  change("arrows", (event) => { page.state.arrows = event.target.checked; keep(page.state); page.columns.show(); page.columns.drawPlan(); });
  change("always", (event) => { page.state.always = event.target.checked; keep(page.state); if (page.mover === HUMAN) page.proceed(page.turnNumber); });
  change("shortcuts", (event) => { page.state.shortcuts = event.target.checked; keep(page.state); });
  change("sounds", (event) => { page.state.sounds = event.target.checked; keep(page.state); if (page.state.sounds) sound("move"); });
  change("seed", (event) => { if (event.target.checkValidity()) { page.state.seed = Number(event.target.value); keep(page.state); } });
  for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());
  addEventListener("hashchange", () => location.reload()); // another position was put into the address
  listenToKeys(page);
}

/** Play the typed move, in any notation that the server reads; what is wrong with it is shown beside the field. */
async function typeMove(page, event) {
  event.preventDefault();
  const text = byId("move").value.trim();
  if (!text) return;
  if (!page.current) {
    page.refresh();
    return;
  }
  const question = page.question();
  let wrong = page.board.playable ? "" : t("move.not-yours");
  try {
    if (!wrong) {
      const typed = await server.position({ ...question, typed: text });
      if (!sameMoves(question, page.question())) return; // another move came first, such as this one, entered twice
      byId("move").value = "";
      page.play(typed.moves.at(-1));
    }
  } catch (error) {
    if (!(error instanceof server.Trouble)) throw error;
    wrong = error.message;
  }
  complain(wrong);
}

/** Show what is wrong with a typed move in one sentence, with the legal moves folded away. */
export function complain(wrong) {
  const [sentence, moves] = wrong.split("; legal: ");
  const move = /'[^']*'/.exec(sentence)?.[0] ?? "";
  const short = moves === undefined ? wrong : t(/ambiguous/.test(sentence) ? "move.ambiguous" : "move.illegal", { move });
  byId("move-error").replaceChildren(el("span", { text: short }),
    moves ? el("details", {}, el("summary", { text: t("move.legal") }), el("p", { text: moves })) : "");
  byId("move-error").hidden = !wrong;
  byId("move").setAttribute("aria-invalid", String(wrong !== ""));
}

/** Save the game as a file. */
async function save(page) {
  const { outcome } = page.position;
  const opened = page.state.source?.line === page.played.join(" ") ? page.state.source : null; // not played on since
  const result = opened?.result ?? (outcome ? { 0: 1, 1: -1 }[outcome.winner] ?? 0 : null);
  const players = [0, 1].map((player) => opened?.players[player] || page.playerName(player));
  const clock = { clock: page.state.clock, on_time: Boolean(outcome?.onTime) };
  try {
    const { blob, name } = await server.exported({ ...page.question(), ...clock, format: byId("format").value, players, result, date: opened?.date });
    download(blob, name);
    byId("notice").textContent = t("save.done", { name });
  } catch (error) {
    if (!(error instanceof server.Trouble)) throw error;
    byId("notice").textContent = error.message;
  }
}

const copy = ({ position: { text } }) => copyText(text, t("copy.done", { text }), t("copy.instead", { text }));

/** Put a text into the clipboard; without one, show it, so that it can be selected. */
async function copyText(text, done, instead) {
  try {
    await navigator.clipboard.writeText(text);
    byId("notice").textContent = done;
  } catch (error) {
    byId("notice").textContent = instead;
    console.info("no clipboard:", error.message);
  }
}

/** Change to the next theme; the first one after "auto" differs from the system's. */
function turnTheme(page) {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const themes = isDark ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
  page.state.theme = themes[(themes.indexOf(page.state.theme) + 1) % themes.length];
  dress(page);
  page.say(byId("theme").title);
  keep(page.state);
}

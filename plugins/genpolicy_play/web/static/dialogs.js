/** The dialogs: which of several moves, which new game. */

import { imported, position, Trouble } from "./api.js";
import { chosenClock, fillClock } from "./clock.js";
import { byId, el } from "./dom.js";
import { HUMAN } from "./store.js";
import { parseSvg, places, spot } from "./svg.js";
import { GameWords, t } from "./words.js";

const NAMED = ["uci", "usi"]; // protocols whose texts of positions have a name
const ENDINGS = ["q", "r", "b", "n", "+"];

/** The game's name for the text of a position. */
export const textName = (game) => t(`text.${NAMED.includes(game?.protocol) ? game.protocol : "position"}`);

/**
 * Ask which of several moves between the same two places is meant: the promotions.
 *
 * @param {Object[]} moves Legal moves of one source and target.
 * @param {(move: Object) => Promise<Object>} after The position after a move, for its picture.
 * @returns {Promise<Object|null>} null if none was chosen
 */
export function choosePromotion(moves, after) {
  const dialog = byId("choose");
  const buttons = moves.map((move) => {
    const name = move.choice ?? ending(moves, move);
    const picture = el("span", { class: "picture", "aria-hidden": "true" });
    after(move).catch(() => after(move)) // once more, as a connection may break
      .then((position) => crop(picture, position.svg, move.target), (error) => console.warn("no picture:", error));
    return el("button", { type: "button", class: "choice", "data-move": move.move, "aria-label": t("choose.label", { name, move: move.label }),
      on: { click: () => dialog.close(move.move) } }, picture, el("span", { text: name }), el("small", { text: move.label }));
  });
  byId("choices").replaceChildren(...buttons);
  dialog.returnValue = "";
  dialog.showModal();
  buttons[0].focus();
  return new Promise((answer) => dialog.addEventListener("close", () =>
    answer(moves.find((move) => move.move === dialog.returnValue) ?? null), { once: true }));
}

/** What a move's protocol text says beyond its squares, in words: e7e8q is a queen, 8h2b+ a promotion. */
function ending(moves, move) {
  const shortest = Math.min(...moves.map((other) => other.move.length));
  if (move.move.length > 4) return ENDINGS.includes(move.move.slice(4)) ? t(`choose.${move.move.slice(4)}`) : move.label;
  return shortest === 4 && moves.length === 2 ? t("choose.=") : move.label;
}

/** Show one place of a drawn position. */
function crop(picture, text, target) {
  const svg = parseSvg(text);
  picture.replaceChildren(svg);
  const place = places(svg).get(target);
  if (!place) return;
  const { x, y, width, height } = spot(svg, place);
  svg.setAttribute("viewBox", `${x - width / 2} ${y - height / 2} ${width} ${height}`);
}

/**
 * Ask for a new game: which one, from which position, who plays.
 *
 * @returns {Promise<{game: string, start: string|null, sides: string[], clock: Object|null}|null>} null: none
 */
export function askNewGame(offers, state) {
  const dialog = byId("new-game");
  const [gameField, textField] = [byId("new-kind"), byId("new-start")];
  const sides = [byId("new-first"), byId("new-second")];
  const wrong = byId("new-error");
  const chosen = () => offers.games.find((offered) => offered.spec === gameField.value);
  let ofFile = null; // what the field held when it was filled from the chosen file
  const read = async () => {
    const [file] = byId("new-file").files;
    if (file) textField.value = await textOf(file, chosen());
    ofFile = textField.value;
  };
  const fill = () => {
    const game = chosen();
    const formats = (game.file_suffixes ?? []).map((suffix) => suffix.slice(1).toUpperCase()).join(", ");
    const text = textName(game);
    byId("new-start-label").textContent = t(formats ? "new.start-or-game" : "new.start", { text: text[0].toUpperCase() + text.slice(1), formats });
    textField.placeholder = game.start ?? "";
    sides.forEach((side, index) => {
      fillPlayers(side, offers, game.spec, state.game === game.spec ? state.sides[index] : HUMAN);
      byId(["new-first-label", "new-second-label"][index]).textContent = t("new.side", { player: new GameWords(game).of(game.players[index]) });
    });
    fillClock(game, state.clock);
    complain("");
  };
  const complain = (text) => {
    wrong.textContent = text;
    textField.setAttribute("aria-invalid", String(text !== ""));
  };
  gameField.replaceChildren(...offers.games.map((game) => el("option", { value: game.spec, text: new GameWords(game).of(game.title ?? game.spec) })));
  gameField.value = state.game;
  textField.value = "";
  byId("new-file").value = "";
  byId("new-file").onchange = read;
  gameField.onchange = () => {
    fill();
    if (textField.value === ofFile) read();
  };
  fill();
  dialog.showModal();
  textField.focus();
  return new Promise((answer) => {
    let [made, closed] = [null, false];
    byId("new-form").onsubmit = async (event) => {
      event.preventDefault();
      const [game, clock] = [gameField.value, chosenClock()];
      if (typeof clock === "string") {
        byId("clock-error").textContent = clock;
        byId("clock-base").focus();
        return;
      }
      try {
        const asked = { game, ...(await opened(game, textField.value.trim())), sides: sides.map((side) => side.value), clock };
        if (closed) return; // the answer came too late, and the dialog may be open again for another game
        made = asked;
        dialog.close();
      } catch (error) {
        if (!(error instanceof Trouble)) throw error;
        if (closed) return;
        complain(error.message);
        textField.focus();
      }
    };
    dialog.addEventListener("close", () => { closed = true; answer(made); }, { once: true });
  });
}

/**
 * What a pasted text holds: a position, or else a game.
 *
 * @throws {Trouble} neither; the message is about the game where the text looks like one
 */
async function opened(game, text) {
  if (!text) return { start: null };
  const isGame = text.includes("\n") || /^(1\s*\.|[▲△☗☖])/.test(text);
  const wrong = isGame ? null : await position({ game, start: text, moves: [] }).then(() => null, (error) => error);
  if (!isGame && wrong === null) return { start: text };
  try {
    const { start, moves, players, result, date } = await imported(game, text);
    return { start, moves, source: { line: moves.join(" "), players, result, date } };
  } catch (error) {
    throw wrong ?? error;
  }
}

/** The text of a file of a game. Where it is not UTF-8, older programs wrote Shift-JIS for shogi, and Latin-1 (PGN's own encoding) for others. */
async function textOf(file, game) {
  const bytes = await file.arrayBuffer();
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder(game.protocol === "usi" ? "shift_jis" : "iso-8859-1").decode(bytes);
  }
}

/** A policy's name, with its Elo where it has one. */
export const ratedName = ({ label, rating }) => (rating ? t("rated", { policy: label, elo: Math.round(rating.elo) }) : label);

/** Fill a select with a person and the policies of a game. */
export function fillPlayers(select, offers, game, chosen) {
  const policies = offers.policies.filter((policy) => policy.game === game);
  select.replaceChildren(el("option", { value: HUMAN, text: t("you") }),
    ...policies.map((policy) => el("option", { value: policy.id, text: ratedName(policy) })));
  select.value = chosen;
  if (!select.value) select.value = HUMAN;
}

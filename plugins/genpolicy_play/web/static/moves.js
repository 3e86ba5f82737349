/** The list of moves. */

import { byId, el } from "./dom.js";
import { language, t } from "./words.js";

/** Show the moves of the page's line and the name of its opening; a click on a move goes there. */
export function showMoves(page) {
  const opening = page.position.opening ?? "";
  const name = page.words.of(opening);
  Object.assign(byId("opening"), { textContent: name, lang: name === opening ? "en" : language });
  byId("moves").replaceChildren(...page.state.moves.map((move, index) => {
    const label = page.write({ move, label: page.state.labels[index] });
    const current = index === page.state.ply - 1;
    const button = el("button", { type: "button", text: label, "aria-current": current ? "true" : null,
      "aria-label": t("moves.one", { number: index + 1, move: label }), on: { click: () => page.goTo(index + 1) } });
    const number = numberOf(page, index).endsWith(".") || index === 0 ? numberOf(page, index) : null;
    return el("li", { class: index >= page.state.ply ? "later" : "" }, number && el("span", { class: "number", text: number }), button);
  }));
  showWithin(byId("moves"), byId("moves").querySelector("[aria-current]"));
}

/** A move of the list with its number, as people write it. */
export function moveName(page, index) {
  return `${numberOf(page, index)} ${page.write({ move: page.state.moves[index], label: page.state.labels[index] })}`;
}

/** The number of a move in the list: "3." or, for the second of a pair, "3…". */
function numberOf(page, index) {
  const pairs = page.game.protocol === "uci"; // 1. e4 e5; other games count each move
  const half = index + (pairs ? page.firstPlayer : 0);
  const first = Number(page.position.start.split(" ")[5]) || 1; // a FEN's sixth field, which saved games count from as well
  return pairs ? `${Math.floor(half / 2) + first}${half % 2 ? "…" : "."}` : `${index + 1}.`;
}

/** Scroll a list, and nothing around it, until one of its lines is visible. */
function showWithin(list, line) {
  if (!line) return;
  const [frame, box] = [list.getBoundingClientRect(), line.getBoundingClientRect()];
  list.scrollTop += Math.min(0, box.top - frame.top) + Math.max(0, box.bottom - frame.bottom);
}

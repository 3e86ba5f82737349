/** The list of moves. */

import { byId, el } from "./dom.js";
import { t } from "./words.js";

/** Show the moves of the page's line; a click on one goes there. */
export function showMoves(page) {
  byId("moves").replaceChildren(...page.state.moves.map((move, index) => {
    const label = page.write({ move, label: page.state.labels[index] });
    const current = index === page.state.ply - 1;
    const button = el("button", { type: "button", text: label, "aria-current": current ? "true" : null,
      "aria-label": t("moves.one", { number: index + 1, move: label }), on: { click: () => page.goTo(index + 1) } });
    const number = page.number(index).endsWith(".") || index === 0 ? page.number(index) : null;
    return el("li", { class: index >= page.state.ply ? "later" : "" }, number && el("span", { class: "number", text: number }), button);
  }));
  showWithin(byId("moves"), byId("moves").querySelector("[aria-current]"));
}

/** Scroll a list, and nothing around it, until one of its lines is visible. */
function showWithin(list, line) {
  if (!line) return;
  const [frame, box] = [list.getBoundingClientRect(), line.getBoundingClientRect()];
  list.scrollTop += Math.min(0, box.top - frame.top) + Math.max(0, box.bottom - frame.bottom);
}

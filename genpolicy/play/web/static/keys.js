/** Single-letter keys for the whole page, where nobody is typing. */

import { byId } from "./dom.js";

/** @param {Object} page What the keys turn. */
export function listenToKeys(page) {
  const column = () => page.columns.get(page.pointing);
  const acts = {
    u: () => page.undo(),
    r: () => page.redo(),
    f: () => page.flip(),
    n: () => page.newGame(),
    l: () => page.lookAll(),
    m: () => byId("move").focus(),
    b: () => page.board.focus(),
    p: () => column()?.replay(),
    "[": () => column()?.turn(-1),
    "]": () => column()?.turn(1),
    "?": () => byId("help").showModal(),
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox], [type=range]), textarea, select");
    if (typing && event.key === "Escape") return page.board.focus();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return undefined;
    const act = acts[event.key.toLowerCase()];
    if (!act || !page.state.shortcuts) return undefined;
    event.preventDefault();
    return act();
  });
}

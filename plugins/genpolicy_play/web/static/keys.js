/** Single-letter keys for the whole page, except while somebody is typing. */

import { byId } from "./dom.js";

const FROM_SELECTS = ["l", "p", "[", "]"]; // which keep the focus after a choice; other letters find entries in them

/** @param {Object} page What the keys act on. */
export function listenToKeys(page) {
  const acts = {
    u: () => page.undo(),
    r: () => page.redo(),
    f: () => page.flip(),
    n: () => page.newGame(),
    e: () => page.edit(),
    l: () => page.lookAll(),
    m: () => byId("move").focus(),
    b: () => page.board.focus(),
    p: () => page.columns.turnSteps((column) => column.replay()),
    "[": () => page.columns.turnSteps((column) => column.turn(-1)),
    "]": () => page.columns.turnSteps((column) => column.turn(1)),
    "?": () => byId("help").showModal(),
  };
  const turns = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  document.addEventListener("keydown", (event) => { // the board keeps the arrows that move between its squares
    if (!(event.key in turns) || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (event.target.closest("input, textarea, select, dialog[open]") || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    page.leaf(turns[event.key]);
  });
  document.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase();
    if (key === "escape") page.ahead.cancel();
    const typing = event.target.closest("input:not([type=checkbox], [type=range]), textarea")
      ?? (FROM_SELECTS.includes(key) ? null : event.target.closest("select"));
    if (typing && event.key === "Escape") return page.board.focus();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return undefined;
    const act = acts[key];
    if (!act || !page.state.shortcuts) return undefined;
    event.preventDefault();
    return act();
  });
}

/** A move that is entered while a policy thinks: it waits for its turn. */

import { HUMAN } from "./store.js";
import { t } from "./words.js";

export class Ahead {
  /** @param {Object} page `board`, `position`, `mover`, `played`, `say(text)`. */
  constructor(page) {
    this.page = page;
    this.move = null; // {source, target, after}: the places, and the line on which it was entered
  }

  enter({ source, target }) {
    this.#set({ source, target, after: this.page.position.moves.join(" ") });
    this.page.say(t("ahead.set"));
  }

  cancel() {
    if (!this.move) return;
    this.#set(null);
    this.page.say(t("ahead.cancelled"));
  }

  /** Make the move if its turn has come; whether it was made. Any other change of the position drops it. */
  follow() {
    const { page, move } = this;
    if (!move || move.after === page.played.join(" ")) return false;
    this.#set(null);
    if (page.mover !== HUMAN || move.after !== page.played.slice(0, -1).join(" ")) return false;
    const made = page.board.make(move);
    if (!made) page.say(t("ahead.illegal"));
    return made;
  }

  #set(move) {
    this.move = move;
    this.page.board.wait(move);
  }
}

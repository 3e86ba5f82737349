/** The columns beside the board: which policies are looked into, and whose plan lies over the board. */

import { Column } from "./column.js";
import { ratedName } from "./dialogs.js";
import { byId, el } from "./dom.js";
import { whence } from "./line.js";
import { moveName } from "./moves.js";
import { HUMAN, keep, tidy } from "./store.js";
import { t } from "./words.js";

const COLUMNS = 4;

export class Columns {
  /**
   * @param {Object} page `state`, of which `watched` names the policies; `offers`, `policy(id)`, `position`, `played`, `aims`, `sideNames`,
   *   `board`, `write(move)`, `lookAgain(id, reseed)`, `playFrom(move, question)`, `say(text)`.
   */
  constructor(page) {
    this.page = page;
    this.all = new Map(); // by the policy's id
    this.pointing = undefined; // id of the column whose plan is on the board
    this.touched = undefined; // id of the one that a person used last
  }

  get state() {
    return this.page.state;
  }

  /** Remove a policy that does not play, where there is no room for another column. */
  makeRoom(id) {
    if (id === HUMAN || this.state.watched.includes(id) || this.state.watched.length < COLUMNS) return;
    const idle = this.state.watched.findLast((other) => !this.state.sides.includes(other));
    this.state.watched = this.state.watched.filter((other) => other !== idle);
  }

  /** Show a column for each policy that is watched, and for no other; mark what each one is about. */
  show() {
    const { watched } = this.state;
    for (const [id, column] of this.all) {
      if (watched.includes(id)) continue;
      column.stop();
      column.node.remove();
      this.all.delete(id);
    }
    const taken = new Set([...this.all.values()].map((column) => column.hue));
    for (const id of watched.filter((each) => !this.all.has(each))) {
      const hue = [0, 1, 2, 3].find((free) => !taken.has(free)) ?? 0;
      taken.add(hue);
      this.all.set(id, this.#made(id, hue));
      byId("columns").append(this.all.get(id).node);
    }
    if (!watched.includes(this.pointing)) this.pointing = watched[0];
    const name = (index) => moveName(this.page, index);
    for (const [id, column] of this.all) {
      const sides = this.state.sides.flatMap((side, player) => (side === id ? [this.page.sideNames[player]] : []));
      const plays = sides.length ? t(sides.length > 1 ? "column.plays-both" : "column.plays", { player: sides[0], other: sides[1] }) : "";
      column.mark({ pointing: id === this.pointing && this.state.arrows, plays,
        ...whence(column.question, this.state, name) });
    }
    const free = this.page.offers.policies.filter((policy) => policy.game === this.state.game && !watched.includes(policy.id));
    byId("add").replaceChildren(el("option", { value: "", text: t(free.length ? "compare.another" : "compare.all") }),
      ...free.map((policy) => el("option", { value: policy.id, text: ratedName(policy) })));
    byId("add").disabled = !free.length;
    byId("look").disabled = !watched.length || Boolean(this.page.position?.outcome);
  }

  #made(id, hue) {
    return new Column(this.page.policy(id), hue, {
      write: (move) => this.page.write(move),
      options: () => this.state.options[id] ?? {},
      setOption: (name, value) => {
        this.state.options[id] = { ...this.state.options[id], [name]: value };
        if (value === undefined) delete this.state.options[id][name];
        keep(this.state);
      },
      players: () => this.page.sideNames,
      changed: () => { if (id === this.pointing) this.drawPlan(); },
      close: () => this.watch(this.state.watched.filter((other) => other !== id)),
      touched: () => { this.touched = id; },
      again: (reseed = false) => this.page.lookAgain(id, reseed),
      play: (move, question) => this.page.playFrom(move, question),
      point: () => {
        const on = id !== this.pointing || !this.state.arrows;
        this.state.arrows = on;
        this.pointing = id;
        byId("arrows").checked = on;
        keep(this.state);
        this.show();
        this.drawPlan();
      },
    });
  }

  /** The column that a person used last, else the one whose plan is on the board. */
  get attended() {
    return this.all.get(this.touched) ?? this.all.get(this.pointing);
  }

  /** Go through the steps of that column, and announce what happened. */
  turnSteps(act) {
    this.page.say(this.attended ? act(this.attended) : t("columns.none"));
  }

  /** Look into these policies, and into those that play. */
  watch(ids) {
    this.state.watched = ids;
    tidy(this.state, this.page.offers);
    keep(this.state);
    this.show();
    this.drawPlan();
  }

  /** Draw the plan of the pointing column over the board, as far as the game has followed it. */
  drawPlan() {
    const column = this.all.get(this.pointing);
    const question = column?.question;
    let lines = [];
    if (this.state.arrows && question && question.game === this.state.game && question.start === this.state.start) {
      const since = this.page.played.slice(question.moves.length);
      const behind = question.moves.every((move, index) => move === this.page.played[index]) && this.state.ply >= question.moves.length;
      const plan = column.plan().map((line) => ({ ...this.page.aims.get(line.move), ...line }));
      if (behind && since.every((move, index) => plan[index]?.move === move)) lines = plan.slice(since.length).map((line, index) => ({ ...line, number: index + 1 }));
    }
    this.page.board.arrows(lines.filter((line) => line.target >= 0));
  }
}

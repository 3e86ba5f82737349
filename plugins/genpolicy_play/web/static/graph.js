/** The evaluation along the game: what a policy thinks of each position, as a line that leads to the moves. */

import { decide, position, Trouble } from "./api.js";
import { byId, percent } from "./dom.js";
import { moveName } from "./moves.js";
import { shape } from "./svg.js";
import { t } from "./words.js";

const [WIDTH, HEIGHT] = [600, 90]; // units of the drawing
const SWING = 0.2; // of the chances: a move that changes them by more is marked

export class Graph {
  /** @param {Object} page `state`, `game`, `question(moves)`, `attended`: the column whose policy is asked, `goTo(ply)`. */
  constructor(page) {
    this.page = page;
    this.root = byId("graph");
    this.line = null; // what was evaluated: game, start and moves
    this.chances = []; // of the first player, for each ply; null where nobody knows
    byId("evaluate").addEventListener("click", () => (this.abort ? this.abort.abort() : this.evaluate()));
    this.root.addEventListener("click", (event) => {
      const { left, width } = this.root.getBoundingClientRect();
      const last = Math.max(1, this.chances.length - 1);
      page.goTo(Math.round(((event.clientX - left) / width) * last));
    });
  }

  /** Ask the policy of the column used last about every position of the line. */
  async evaluate() {
    const { page } = this;
    const column = page.columns.attended;
    if (!column) return this.#say(t("columns.none"));
    const { game, start } = page.state;
    const moves = [...page.state.moves];
    const abort = new AbortController();
    Object.assign(this, { abort, line: { game, start, moves }, chances: [] });
    byId("evaluate").textContent = t("evaluate.stop");
    try {
      for (let ply = 0; ply <= moves.length; ply += 1) {
        this.#say(t("evaluate.at", { policy: column.policy.label, at: ply + 1, of: moves.length + 1 }));
        this.chances.push(await this.#chance(column, moves.slice(0, ply), ply, abort.signal));
        if (!this.#fits()) return this.#say(t("evaluate.changed"));
        this.draw();
      }
      this.#say(this.chances.some((chance) => chance !== null) ? this.words() : t("evaluate.no-value", { policy: column.policy.label }));
    } catch (error) {
      if (abort.signal.aborted) this.#say(t("evaluate.stopped"));
      else if (error instanceof Trouble) this.#say(error.message);
      else throw error;
    } finally {
      this.abort = null;
      byId("evaluate").textContent = t("evaluate");
    }
  }

  async #chance(column, moves, ply, signal) {
    const question = { ...this.page.question(moves), policy: column.policy.id, options: this.page.state.options[column.policy.id] ?? {}, dream: false, seed: this.page.state.seed };
    let turn = this.page.state.turns[ply];
    if (ply === this.line.moves.length) { // where the game may be over, so that there is nothing to decide; perhaps never shown
      const { outcome, turns } = await position(this.page.question(moves), signal);
      if (outcome) return { 0: 1, 1: 0 }[outcome.winner] ?? 0.5;
      turn = turns.at(-1);
    }
    if (turn === null) return null; // the die is in the air
    let win = null;
    for await (const { decision } of decide(question, signal)) if (decision) win = decision.win_probability;
    return typeof win !== "number" ? null : turn === 0 ? win : 1 - win;
  }

  /** Whether what was evaluated are the moves on the page. */
  #fits() {
    const { line, page: { state } } = this;
    return line !== null && line.game === state.game && line.start === state.start && line.moves.join() === state.moves.join();
  }

  /** Show the line as far as it belongs to the moves on the page, with the position on the board marked. */
  draw() {
    const { line, page: { state } } = this;
    const fits = this.#fits();
    const known = fits ? this.chances.map((chance, ply) => ({ chance, ply })).filter(({ chance }) => chance !== null) : [];
    this.root.toggleAttribute("hidden", known.length === 0);
    if (!known.length) {
      if (line && !fits) this.#say("");
      return;
    }
    const x = (ply) => (WIDTH * ply) / Math.max(1, line.moves.length);
    const y = (chance) => HEIGHT * (1 - chance);
    const points = known.map(({ chance, ply }) => `${x(ply).toFixed(1)},${y(chance).toFixed(1)}`);
    const swings = known.filter(({ chance, ply }, index) => index > 0 && known[index - 1].ply === ply - 1 && Math.abs(chance - known[index - 1].chance) >= SWING);
    this.root.replaceChildren(
      shape("polygon", { class: "area", points: `${x(known[0].ply)},${HEIGHT} ${points.join(" ")} ${x(known.at(-1).ply)},${HEIGHT}` }),
      shape("line", { class: "half", x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 }),
      shape("polyline", { class: "chances", points: points.join(" ") }),
      ...swings.map(({ chance, ply }) => shape("circle", { class: "swing", cx: x(ply), cy: y(chance), r: 5 })),
      shape("line", { class: "here", x1: x(state.ply), x2: x(state.ply), y1: 0, y2: HEIGHT }));
    this.root.setAttribute("viewBox", `-4 -4 ${WIDTH + 8} ${HEIGHT + 8}`);
    this.root.setAttribute("aria-label", this.words());
  }

  /** The line in words: where it begins and ends, and the largest swing. */
  words() {
    const known = this.chances.map((chance, ply) => ({ chance, ply })).filter(({ chance }) => chance !== null);
    if (!known.length) return "";
    const swing = known.slice(1).map(({ chance, ply }, index) => ({ ply, by: Math.abs(chance - known[index].chance) })).sort((a, b) => b.by - a.by)[0];
    const told = { player: this.page.sideNames[0], first: percent(known[0].chance), last: percent(known.at(-1).chance) };
    if (!swing || swing.by < SWING) return t("evaluate.words", told);
    return t("evaluate.words-swing", { ...told, swing: percent(swing.by), move: moveName(this.page, swing.ply - 1) });
  }

  #say(text) {
    byId("graph-note").textContent = text;
  }
}

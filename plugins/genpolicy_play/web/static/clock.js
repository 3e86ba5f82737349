/**
 * The clock of a game. What the players have left follows from what each move took, so that a move that is taken back
 * gives its time back. This page is the arbiter: the server keeps no games, and whoever sits here can take moves back anyway.
 */

import { byId, el } from "./dom.js";
import { HUMAN, keep } from "./store.js";
import { t } from "./words.js";

const TICK_MS = 100;
const LOW_MS = 10_000; // from here on with tenths of a second, and in the colour of trouble
const FISCHER = [[60, 0], [180, 2], [300, 0], [600, 5], [900, 10]]; // base and increment, seconds
const BYOYOMI = [[0, 30], [600, 30], [900, 60]]; // base and byoyomi, seconds; in shogi
const OWN = "own";

/**
 * What both players have left.
 *
 * @param {{base: number, increment: number, byoyomi: number}} limits Milliseconds.
 * @param {([number, number]|null)[]} made Player and milliseconds of each move; null: not timed.
 * @param {[number, number]|null} current The same of the move that is being thought about.
 * @returns {{main: number, period: number}[]} of each player; time is over where both are 0
 */
export function left({ base, increment, byoyomi }, made, current = null) {
  const sides = [0, 1].map(() => ({ main: base || increment, period: byoyomi }));
  for (const [player, ms] of made.filter(Boolean)) {
    sides[player].main = Math.max(0, sides[player].main - ms) + increment;
  }
  if (current) {
    const [player, ms] = current;
    const { main } = sides[player];
    sides[player] = { main: Math.max(0, main - ms), period: Math.max(0, byoyomi - Math.max(0, ms - main)) };
  }
  return sides;
}

/** 83000 as "1:23", 3723000 as "1:02:03", 9400 as "0:09.4"; only what is over reads as nothing left. */
export function spell(ms) {
  const tenths = Math.ceil(ms / 100);
  if (ms < LOW_MS) return `0:${String(Math.floor(tenths / 10)).padStart(2, "0")}.${tenths % 10}`;
  const seconds = Math.ceil(ms / 1000);
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return `${hours ? `${hours}:${String(minutes).padStart(2, "0")}` : minutes}:${String(seconds % 60).padStart(2, "0")}`;
}

export class Clock {
  /**
   * @param {Object} page `state` holds `clock` (the limits, or null), `spent` (player and milliseconds of each ply) and `since`
   *   (when the current move's time began to run, or null); `position`, `mover`, `timeOver()`, `say(text)`.
   * @param {() => number} now Milliseconds of a clock that goes on while the page is reloaded.
   */
  constructor(page, now = Date.now) {
    this.page = page;
    this.now = now;
    setInterval(() => { if (this.runs && page.position) this.#tick(); }, TICK_MS); // after a reload it runs before there is a position
  }

  get on() {
    return Boolean(this.page.state.clock);
  }

  get runs() {
    return this.page.state.since !== null;
  }

  /** Whether the moves after the position on the board wait to be played again: no time runs for a person then. */
  get #looksBack() {
    const { state, mover } = this.page;
    return state.ply < state.moves.length && mover === HUMAN;
  }

  /** What both players have left now. */
  left() {
    const { clock, spent, ply } = this.page.state;
    const current = ply < this.page.state.moves.length && !this.runs ? null : spent[ply];
    return left(clock, spent.slice(0, ply), current ? [current[0], current[1] + this.#elapsed()] : null);
  }

  /** What a policy is told. */
  told(player) {
    if (!this.on) return undefined;
    const { main, period } = this.left()[player];
    return { left: Math.round(main), increment: this.page.state.clock.increment, byoyomi: Math.round(period) };
  }

  /** Let the time of the player to move run, where it does: not for nature, in a pause, at an earlier position, at the end. */
  run() {
    const { state, position } = this.page;
    if (this.on && !this.runs && !position.outcome && !position.drawn && !state.held && !this.#looksBack) {
      if (state.ply < state.moves.length) state.spent[state.ply] = null; // a policy that is let move decides anew
      state.spent[state.ply] ??= [position.player, 0];
      state.since = this.now();
      keep(state);
    }
    this.show();
  }

  stop() {
    const { state } = this.page;
    if (!this.runs) return;
    state.spent[state.ply][1] += this.#elapsed();
    state.since = null;
    keep(state);
    this.show();
  }

  /** Charge the move that is played on the position on the board; false if the time was over before. */
  press() {
    const { state, position } = this.page;
    if (!this.on || position.drawn) return true;
    if (this.#looksBack) state.spent[state.ply] = [position.player, 0];
    this.stop();
    return !this.judge();
  }

  /** End the game on the board if the time of the player to move is over; whether it is. */
  judge() {
    const { state, position } = this.page;
    if (!this.on || position.outcome || state.ply < state.moves.length) return false;
    const { main, period } = this.left()[position.player];
    if (main + period > 0) return false;
    this.stop();
    const other = 1 - position.player;
    position.outcome = { winner: position.can_win[other] ? other : null, reason: null, onTime: true };
    return true;
  }

  /** Show both players' time beside their names. */
  show() {
    const sides = this.on && this.page.position ? this.left() : null;
    for (const id of ["near", "far"]) {
      const node = byId(`${id}-clock`);
      node.hidden = !sides;
      if (!sides) continue;
      const { main, period } = sides[Number(byId(id).dataset.player)];
      const text = main > 0 || !this.page.state.clock.byoyomi ? spell(main) : t("clock.period", { time: spell(period) });
      if (node.textContent !== text) node.textContent = text;
      node.classList.toggle("runs", this.runs && this.page.position.player === Number(byId(id).dataset.player));
      node.classList.toggle("low", main + period < LOW_MS);
    }
  }

  #elapsed() {
    return this.runs ? Math.max(0, this.now() - this.page.state.since) : 0;
  }

  #tick() {
    if (this.judge()) this.page.timeOver();
    else this.show();
  }
}

/** The limits as people write them: 3+2, or 10 min + 30 s of byoyomi. */
export function limitsName({ base, increment, byoyomi }) {
  const minutes = String(+(base / 60_000).toFixed(2));
  return byoyomi ? t("clock.with-byoyomi", { minutes, seconds: byoyomi / 1000 }) : `${minutes}+${increment / 1000}`;
}

/** Fill the new game's choice of a clock; `chosen`: limits or null. */
export function fillClock(game, chosen) {
  const byoyomi = game.protocol === "usi";
  const presets = [...FISCHER.map(([base, increment]) => ({ base: 1000 * base, increment: 1000 * increment, byoyomi: 0 })),
    ...(byoyomi ? BYOYOMI : []).map(([base, period]) => ({ base: 1000 * base, increment: 0, byoyomi: 1000 * period }))];
  const values = presets.map((limits) => JSON.stringify(limits));
  const select = byId("new-clock");
  select.replaceChildren(el("option", { value: "", text: t("clock.none") }),
    ...presets.map((limits, index) => el("option", { value: values[index], text: limitsName(limits) })),
    el("option", { value: OWN, text: t("clock.own") }));
  const usable = chosen && (byoyomi || !chosen.byoyomi) ? chosen : null;
  const value = usable ? JSON.stringify(usable) : "";
  select.value = values.includes(value) || !value ? value : OWN;
  const { base, increment, byoyomi: period } = usable ?? { base: 300_000, increment: 3000, byoyomi: 0 };
  for (const [name, number] of [["base", base / 60_000], ["increment", increment / 1000], ["byoyomi", period / 1000]]) {
    byId(`clock-${name}`).value = String(+number.toFixed(2));
  }
  byId("clock-byoyomi").parentNode.hidden = !byoyomi;
  byId("clock-error").textContent = "";
  const own = () => { byId("clock-own").hidden = select.value !== OWN; };
  select.onchange = own;
  own();
}

/** The clock that was chosen for the new game, or null; what is wrong with own values is a text. */
export function chosenClock() {
  const { value } = byId("new-clock");
  if (value !== OWN) return value ? JSON.parse(value) : null;
  const fields = ["base", "increment", "byoyomi"].map((name) => byId(`clock-${name}`));
  if (!fields.every((field) => field.checkValidity())) return t("clock.wrong");
  const [minutes, increment, period] = fields.map((field) => (field.parentNode.hidden ? 0 : Number(field.value)));
  const base = Math.round(60 * minutes); // whole seconds, as the formats of games have them
  const limits = { base: 1000 * base, increment: 1000 * increment, byoyomi: 1000 * period };
  return base + increment + period > 0 ? limits : t("clock.wrong");
}

/** The page: a game on the board, the policies that play or analyse it, and how they act on each other. */

import { Ahead } from "./ahead.js";
import * as server from "./api.js";
import { Board } from "./board.js";
import { Clock } from "./clock.js";
import { Columns } from "./columns.js";
import { complain, dress, showTrouble, wire } from "./controls.js";
import { askNewGame, choosePromotion, fillPlayers, textName } from "./dialogs.js";
import { byId, canShow, percent } from "./dom.js";
import { Editor } from "./editor.js";
import { Graph } from "./graph.js";
import { branch, sameMoves, swap } from "./line.js";
import { showMoves } from "./moves.js";
import { sound } from "./sound.js";
import { beginner, HUMAN, keep, restore, tidy } from "./store.js";
import { GameWords, t, translate } from "./words.js";

const BETWEEN_POLICIES_MS = 700; // when two policies play each other, so that a person can follow

class Page {
  constructor(offers) {
    this.offers = offers;
    this.state = restore(offers);
    this.columns = new Columns(this);
    this.aims = new Map(); // protocol move -> {source, target}, of all legal moves shown so far
    this.turnNumber = 0; // raised by every change of the position, so that a late answer can be recognised
    this.board = new Board(byId("board"), byId("apart"), {
      choose: (moves) => choosePromotion(moves.map((move) => ({ ...move, label: this.write(move) })), (move) => server.position(this.question([...this.played, move.move]))),
      move: (move) => this.make(move),
      cancel: () => this.ahead.cancel(),
      say: (text) => this.say(text),
      words: () => this.words,
      write: (move) => this.write(move),
    });
    this.ahead = new Ahead(this);
    this.clock = new Clock(this);
    this.graph = new Graph(this);
    this.editor = new Editor((start) => this.start({ game: this.state.game, start, sides: this.state.sides }));
    wire(this);
    dress(this);
    this.refresh({ first: true });
  }

  get game() {
    return this.offers.games.find((game) => game.spec === this.state.game);
  }

  /** What the game says, in the page's language. */
  get words() {
    return new GameWords(this.game);
  }

  /** The sides as people read them. */
  get sideNames() {
    return this.game.players.map((name) => this.words.of(name));
  }

  /** Who made the first move of the list. */
  get firstPlayer() {
    return this.state.turns[0] ?? 0;
  }

  get fallsDown() {
    return this.state.game.includes("gravity=true");
  }

  get played() {
    return this.state.moves.slice(0, this.state.ply);
  }

  /** Whether the board shows the position that the state names: not while that one is fetched, nor where it could not be. */
  get current() {
    return this.shown !== undefined && sameMoves(this.shown, this.question());
  }

  get mover() {
    return this.position && !this.position.outcome ? this.state.sides[this.position.player] : null;
  }

  question(moves = this.played) {
    return { game: this.state.game, start: this.state.start, moves, flip: this.state.flip };
  }

  policy(id) {
    return this.offers.policies.find((policy) => policy.id === id);
  }

  playerName(player) {
    const id = this.state.sides[player];
    return id === HUMAN ? t("you") : this.policy(id).label;
  }

  /** A move as the list and the columns write it. */
  write({ move, label }) {
    return (this.codes ? move : label ?? move) ?? t("end");
  }

  /** Whether moves are written in protocol notation. */
  get codes() {
    return this.state.codes ?? !this.state.labels.concat(this.position?.legal[0]?.label ?? "").every(canShow);
  }

  // ---- the position --------------------------------------------------------------------------------------------

  /** Fetch the position that the state names, show it, and let the player to move, move; `first`: the page was loaded. */
  async refresh({ quiet = false, still = false, first = false } = {}) {
    const turn = ++this.turnNumber;
    keep(this.state);
    let position;
    try {
      position = await server.position(this.question());
    } catch (error) {
      this.clock.stop();
      if (turn === this.turnNumber) showTrouble(this, error);
      return;
    }
    if (turn !== this.turnNumber) return;
    showTrouble(this, null);
    this.position = position;
    this.adopt(position);
    this.shown = this.question();
    this.clock.judge();
    Object.assign(this.state.labels, position.labels);
    Object.assign(this.state.turns, position.turns);
    for (const { move, source, target } of position.legal) this.aims.set(move, { source, target });
    this.show();
    this.clock.run();
    if (!quiet) this.announce();
    if (this.ahead.follow()) return;
    if (!still || this.mover !== HUMAN || this.position.drawn) await this.proceed(turn, first);
  }

  /** Store start and moves as the server writes them: a first position may have included moves. */
  adopt(position) {
    const { state } = this;
    if (state.start !== null) state.start = position.start;
    state.moves = [...position.moves, ...state.moves.slice(state.ply)];
    state.ply = position.moves.length;
    keep(state);
  }

  show() {
    const { position } = this;
    const mine = this.mover === HUMAN || this.state.held;
    const early = !mine && !position.outcome && this.state.sides.includes(HUMAN);
    byId("table").inert = false; // until the first position came, there was nothing to act on
    this.board.show(position, { playable: !position.outcome && !position.drawn && mine, early, fallsDown: this.fallsDown });
    const names = this.sideNames;
    byId("game-title").textContent = this.words.of(this.game.title ?? this.game.spec);
    byId("status").textContent = this.standing();
    byId("status").classList.toggle("over", Boolean(position.outcome));
    document.body.dataset.first = this.game.players[0].toLowerCase();
    for (const [id, player] of [["near", this.state.flip ? 1 : 0], ["far", this.state.flip ? 0 : 1]]) {
      const side = byId(id);
      side.dataset.player = String(player);
      side.querySelector("label").textContent = names[player];
      side.querySelector(".turn").hidden = Boolean(position.outcome) || position.player !== player;
      fillPlayers(side.querySelector("select"), this.offers, this.state.game, this.state.sides[player]);
    }
    byId("notice").textContent = "";
    complain("");
    byId("codes").checked = this.codes;
    byId("flip").hidden = this.fallsDown; // stones do not fall upwards
    byId("edit-open").hidden = !this.game.editable;
    byId("undo").disabled = this.state.ply === 0;
    byId("redo").disabled = this.state.ply >= this.state.moves.length;
    byId("former").hidden = !this.state.former;
    const waits = this.mover !== null && this.mover !== HUMAN;
    byId("go").hidden = !(waits && this.state.held);
    byId("hold").hidden = !(waits && !this.state.held && this.state.sides.every((side) => side !== HUMAN));
    const example = position.legal[position.legal.length >> 1]; // from the middle of the board rather than a corner
    byId("move").placeholder = example ? t("move.example", { move: this.write(example) }) : "";
    byId("copy").textContent = t("copy", { text: textName(this.game) });
    byId("codes").parentNode.hidden = this.game.protocol === "none"; // people write its moves as the protocol does
    showMoves(this);
    this.clock.show();
    this.columns.show();
    this.columns.drawPlan();
    this.graph.draw();
  }

  announce() {
    const { ply } = this.state;
    const { outcome } = this.position;
    const made = this.state.turns[ply - 1];
    const move = this.write({ move: this.state.moves[ply - 1], label: this.state.labels[ply - 1] });
    if (ply && this.state.sounds) sound(outcome ? "end" : "move");
    this.say(ply ? t(made === null ? "say.drawn" : "say.played", { player: this.sideNames[made], move, then: this.standing() }) : this.standing());
  }

  /** Who is to move, or how the game ended, in words. */
  standing() {
    const { outcome, player, check } = this.position;
    const names = this.sideNames;
    if (!outcome) return t(typeof check === "number" ? "status.check" : "status.to-move", { player: names[player] });
    const who = outcome.winner === null ? t("status.draw") : t("status.wins", { player: names[outcome.winner] });
    const late = t(outcome.winner === null ? "clock.over-drawn" : "clock.over", { player: names[player], other: names[1 - player] });
    const reason = outcome.onTime ? late : this.words.of(outcome.reason);
    return reason ? t("status.why", { who, reason }) : who;
  }

  say(text) {
    byId("live").textContent = text;
  }

  // ---- who is to move ---------------------------------------------------------------------------------------------

  async proceed(turn, first = false) {
    const mover = this.mover;
    const analysis = !this.clock.on && this.state.sides.every((side) => side === HUMAN);
    if (mover === null || this.state.held) return;
    if (this.position.drawn) {
      await new Promise((wait) => setTimeout(wait, BETWEEN_POLICIES_MS));
      if (turn === this.turnNumber && !this.state.held) this.play(this.state.moves[this.state.ply] ?? this.position.drawn);
      return;
    }
    if (mover === HUMAN) {
      if (analysis || this.state.always || (first && !this.clock.on)) await this.lookAll(); // a page that was just opened shows a dream
      return;
    }
    const others = this.state.watched.filter((id) => id !== mover);
    const decision = await this.look(mover, { clock: this.clock.told(this.position.player) });
    if (turn !== this.turnNumber) return;
    this.clock.stop(); // what follows until the move is on the board is for people
    if (decision) {
      if (this.state.sides.every((side) => side !== HUMAN)) {
        await Promise.all(others.map((id) => this.look(id)));
        await new Promise((wait) => setTimeout(wait, BETWEEN_POLICIES_MS));
      } else others.forEach((id) => this.look(id));
      if (turn === this.turnNumber && !this.state.held && decision.move) this.play(decision.move);
    } else if (this.columns.all.get(mover)?.failed) {
      this.state.held = true; // its column says what went wrong
      this.failed = mover;
      this.show();
    }
  }

  /** Let one policy analyse the position on the board; its decision, or null. */
  async look(id, { reseed = false, clock } = {}) {
    const column = this.columns.all.get(id);
    if (!column || !this.current || this.position.outcome) return null;
    if (reseed) {
      this.state.seed = (this.state.seed + 1) % 2 ** 31;
      byId("seed").value = String(this.state.seed);
      keep(this.state);
    }
    const question = { ...this.question(), dream: Boolean(this.policy(id).dreams), seed: this.state.seed };
    const { position } = this;
    const decision = await this.settled(column.look(question, position, clock));
    if (decision && position === this.position) { // else there is newer news
      const win = decision.win_probability;
      this.say(t(typeof win === "number" ? "say.chooses-with" : "say.chooses", { policy: this.policy(id).label, move: this.write(decision),
        percent: percent(win), player: this.sideNames[column.position.player] }));
    }
    return decision;
  }

  /** Analyse again; a policy that failed at its own turn then plays as well. */
  lookAgain(id, reseed) {
    if (this.failed !== id || this.mover !== id) return this.look(id, { reseed });
    this.failed = null;
    this.state.held = false;
    return this.refresh({ quiet: true });
  }

  /** What a promise comes to, or null after trouble, which is announced and which its column shows. */
  async settled(promise) {
    try {
      return await promise;
    } catch (error) {
      if (!(error instanceof server.Trouble)) throw error;
      this.say(error.message);
      return null;
    }
  }

  lookAll() {
    return Promise.all(this.state.watched.map((id) => this.look(id)));
  }

  /** A move that a person makes on the board. Where that shows an earlier position, it belongs to none: the new one is asked for again. */
  make(move) {
    if (move.ahead) return this.ahead.enter(move);
    return this.current ? this.play(move.move) : this.refresh();
  }

  /** Play a move on the board; moves taken back before become the former line. */
  play(move) {
    return this.playOn(this.played, move);
  }

  playOn(moves, move) {
    const late = this.position.outcome?.onTime && moves.length === this.state.ply; // a click that was under way
    if (late || !this.clock.press()) return this.timeOver();
    branch(this.state, moves, move);
    this.state.held = false;
    return this.refresh();
  }

  /** Play a move that a column proposed, on the position that it analysed. */
  playFrom(move, question) {
    if (question.game === this.state.game && question.start === this.state.start) this.playOn(question.moves, move);
  }

  /** Restore the line that a move replaced; again, to swap back. */
  former() {
    this.clock.stop();
    swap(this.state);
    return this.goTo(this.state.ply);
  }

  goTo(ply) {
    this.ahead.cancel();
    this.clock.stop();
    this.state.ply = Math.max(0, Math.min(ply, this.state.moves.length));
    const turn = this.state.turns[this.state.ply];
    this.state.held = turn === null ? this.state.ply < this.state.moves.length : this.state.sides[turn] !== HUMAN;
    for (const column of this.columns.all.values()) column.stop();
    return this.refresh();
  }

  /** Some moves back or on in the list, whoever made them. */
  leaf(by) {
    const to = Math.max(0, Math.min(this.state.ply + by, this.state.moves.length));
    return to === this.state.ply ? undefined : this.goTo(to);
  }

  /** One move back; against a policy, back to the last position in which the person was to move. */
  undo() {
    return this.goTo(this.stop(-1));
  }

  redo() {
    return this.goTo(this.stop(1));
  }

  /** The next ply in a direction at which a player moves; against a policy, the next one in which the person was to move. */
  stop(by) {
    const { sides, ply, moves, turns } = this.state;
    const one = sides.filter((side) => side === HUMAN).length === 1;
    let to = ply + by;
    while (to > 0 && to < moves.length && (turns[to] === null || (one && sides[turns[to]] !== HUMAN))) to += by;
    return to;
  }

  start({ game, start, sides, moves = [], clock = null, source = null }) {
    this.ahead.cancel();
    for (const column of this.columns.all.values()) column.clear();
    const other = game !== this.state.game;
    const held = moves.length > 0 && sides.some((side) => side !== HUMAN); // first, a person looks at a game that was opened
    Object.assign(this.state, { game, start, sides, moves, labels: [], turns: [], ply: moves.length, held, former: null, clock, spent: [], since: null, source });
    if (other) this.state.watched = [];
    tidy(this.state, this.offers);
    if (!this.state.watched.length) this.state.watched = beginner(this.offers, game);
    this.state.flip = !this.fallsDown && sides[0] !== HUMAN && sides[1] === HUMAN;
    dress(this);
    return this.refresh();
  }

  async setSide(player, id) {
    this.ahead.cancel();
    const { sides } = this.state;
    sides[player] = id;
    this.state.held = false;
    if (sides.filter((side) => side === HUMAN).length === 1) this.state.flip = !this.fallsDown && sides[0] !== HUMAN;
    this.columns.makeRoom(id);
    tidy(this.state, this.offers);
    dress(this);
    await this.refresh({ quiet: true });
    await this.turnColumns();
  }

  /** Show that the time of the player to move is over; what a policy still decides comes too late. */
  timeOver() {
    this.turnNumber += 1;
    this.ahead.cancel();
    byId("choose").close();
    for (const column of this.columns.all.values()) column.stop();
    this.show();
    this.announce();
  }

  // ---- for the controls -------------------------------------------------------------------------------------------

  async newGame() {
    const made = await askNewGame(this.offers, this.state);
    if (made) await this.start(made);
  }

  /** Set up a position, from the one on the board. */
  async edit() {
    if (!this.game.editable || !this.position) return;
    try {
      await this.editor.open(this.game, this.position.text, this.state.flip);
    } catch (error) {
      if (!(error instanceof server.Trouble)) throw error;
      byId("notice").textContent = error.message;
    }
  }

  async flip() {
    if (this.fallsDown) return;
    this.state.flip = !this.state.flip;
    this.say(t("flip.done", { player: this.sideNames[this.state.flip ? 1 : 0] }));
    await this.refresh({ quiet: true, still: true });
    await this.turnColumns();
  }

  /** Draw what the columns show from the side that the board is seen from; where a policy is to move they will look anew. */
  async turnColumns() {
    if (this.mover !== null && this.mover !== HUMAN && !this.state.held) return;
    await Promise.all([...this.columns.all].map(([id, column]) =>
      (column.abort ? this.look(id) : this.settled(column.turnRound(this.state.flip)))));
  }
}

async function begin() {
  const trouble = byId("trouble");
  try {
    const offers = await server.offers();
    trouble.hidden = true;
    new Page(offers);
  } catch (error) {
    if (!(error instanceof server.Trouble)) throw error;
    trouble.hidden = false;
    trouble.querySelector("span").textContent = error.message;
    trouble.querySelector("button").addEventListener("click", begin, { once: true });
  }
}

translate();
begin();

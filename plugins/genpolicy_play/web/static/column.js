/** One policy analysing one position: its dream step by step, its alternatives, its value. */

import { animated, decide, Trouble } from "./api.js";
import { download, el, isDark, percent } from "./dom.js";
import { sameMoves } from "./line.js";
import { optionFields } from "./options.js";
import { savePicture } from "./picture.js";
import { isWrong, Shown } from "./shown.js";
import { t } from "./words.js";

const STEP_MS = 380; // slow enough for the eye to follow

export class Column {
  /**
   * @param {Object} policy As `/api/offers` describes it.
   * @param {number} hue 0..3, the column's colour.
   * @param {Object} page `write(move)`: its text for people; `options() -> {name: value}`; `setOption(name, value)`; `players()`: names of the sides;
   *   `changed()`: the plan has changed; `close()`; `again()`; `play(move, question)`; `point()`: draw this plan over the board; `touched()`: a person uses it.
   */
  constructor(policy, hue, page) {
    this.policy = policy;
    this.hue = hue;
    this.page = page;
    this.steps = [];
    this.at = -1;
    this.decision = null;
    this.question = null; // whose answer is shown
    this.#build();
  }

  /**
   * Ask the policy about a position and show the answer as it arrives. A question that is being answered already shares
   * that answer; one that another question about the same position overtakes gets the answer to the other one.
   *
   * @param {Object} [clock] What the clock shows, for a policy that is to move under one.
   * @returns {Promise<Object|null>} the decision; null if it was stopped or another position was asked about
   */
  look(question, position, clock) {
    const used = { policy: this.policy.id, options: { ...this.page.options() } };
    const key = JSON.stringify([question, used]);
    if (this.abort && this.key === key) return this.answer;
    this.stop();
    Object.assign(this, { key, used });
    this.answer = this.#ask(question, position, clock);
    return this.answer;
  }

  async #ask(question, position, clock) {
    const abort = new AbortController();
    this.abort = this.latest = abort;
    Object.assign(this, { failed: false, steps: [], at: -1, decision: null, question, position, following: true });
    this.names = new Map(position.legal.map(({ move, label }) => [move, label]));
    const { used } = this;
    const overtaken = () => (this.latest !== abort && sameMoves(this.question, question) ? this.answer : null);
    this.#begin();
    try {
      for await (const line of decide({ ...question, ...used, clock }, abort.signal)) {
        if (abort.signal.aborted) return overtaken();
        if (line.decision) this.#decided(line.decision);
        else this.#step(line);
      }
      return this.decision;
    } catch (error) {
      if (error.name === "AbortError" || abort.signal.aborted) return overtaken();
      this.#failed(error);
      throw error;
    } finally {
      if (this.abort === abort) {
        this.#drawNow(); // while the column keeps its height: a page that is shorter for a moment scrolls away
        this.#idle();
      }
    }
  }

  /**
   * Draw what is imagined from a side: asks the same question again, quietly and with the same seed. The last wish counts.
   * Where the answer is another one now (a clock or an engine's time ended the first), what is shown stays as it is.
   */
  async turnRound(flip) {
    this.turning?.abort();
    if (!this.decision || !(this.steps.length || this.#candidates().length) || this.question.flip === flip) return;
    const before = this.question;
    const abort = this.turning = new AbortController();
    const steps = [];
    let turned = null;
    try {
      for await (const line of decide({ ...before, ...this.used, flip }, abort.signal)) {
        if (line.decision) turned = line.decision;
        else steps.push(line);
      }
    } catch (error) {
      if (abort.signal.aborted || this.question !== before) return;
      this.#failed(error);
      throw error;
    }
    if (abort.signal.aborted || this.question !== before || turned.move !== this.decision.move || steps.length !== this.steps.length) return;
    const { svg, candidates } = turned;
    Object.assign(this, { steps, question: { ...before, flip }, decision: { ...this.decision, svg, candidates } });
    if (steps.length) this.#show(this.at, true);
    else this.shown.showFutures(this.#candidates(), []);
  }

  /** The moves that a search judged whose imagined boards can be shown. */
  #candidates() {
    return (this.decision?.candidates ?? []).filter(({ svg }) => svg);
  }

  /** Stop analysing and replaying; what is shown stays. */
  stop() {
    if (this.abort) {
      this.abort.abort();
      this.#idle();
      this.slider.max = Math.max(0, this.steps.length - 1);
      if (!this.decision) this.note.replaceChildren(this.steps.length ? t("column.stopped-at", { at: this.steps.length, of: this.steps[0].of }) : t("column.stopped"));
    }
    if (this.frame) cancelAnimationFrame(this.frame);
    this.frame = null;
    this.#pause();
  }

  /** The plan of the step shown: `{move, source, target, strength}` for each imagined move; a masked one is a guess. */
  plan() {
    return this.shown.actions().map((action, index) => ({
      ...action, number: index + 1, hue: this.hue, strength: action.probability ?? 0.6, guess: Boolean(action.masked), reply: index % 2 === 1, wrong: isWrong(action),
    })).filter((action) => action.move);
  }

  /**
   * Mark whether this column's plan is on the board, which side it plays, and which position it analysed.
   *
   * @param {Object} marks `about`: a phrase such as "before 2. Nf3" where another position is on the board, else
   *   ""; `next`: the move that was played in the analysed position, or null.
   */
  mark({ pointing, plays, about, next }) {
    this.pointer.setAttribute("aria-pressed", String(pointing));
    this.about.textContent = about ? t("about", { where: about }) : "";
    this.next = next;
    this.#markPlayed();
    this.badge.textContent = plays;
    this.badge.hidden = !plays;
    this.closer.hidden = Boolean(plays);
  }

  /** Show the step again, in another notation. */
  rewrite() {
    if (this.steps.length) this.#show(this.at, false);
    if (this.decision) this.#decided(this.decision);
  }

  /** Show another step: -1 the previous one, +1 the next one. Returns what to announce. */
  turn(by) {
    if (this.steps.length < 2) return this.#nothing();
    this.#show(Math.max(0, Math.min(this.steps.length - 1, this.at + by)), true);
    return this.slider.getAttribute("aria-valuetext");
  }

  /** Replay the steps from the slider's place, or from the beginning; again, to pause. Returns what to announce. */
  replay() {
    if (this.playing) {
      this.#pause();
      return t("column.paused");
    }
    if (this.steps.length < 2) return this.#nothing();
    if (this.at >= this.steps.length - 1) this.#show(0, true);
    this.playing = setInterval(() => {
      if (this.at >= this.steps.length - 1) this.#pause();
      else this.#show(this.at + 1, true);
    }, STEP_MS);
    this.#playLabel();
    return t("column.replaying");
  }

  /** Show that there are no steps to go through. */
  #nothing() {
    const text = t(this.question ? "column.no-steps" : "column.no-steps-yet");
    this.hint.textContent = text;
    return t("column.says", { policy: this.policy.label, text });
  }

  // ---- building ------------------------------------------------------------------------------------------------

  #build() {
    const { policy } = this;
    const name = `${policy.label}`;
    const tool = (text, label, click, more = {}) =>
      el("button", { type: "button", class: "tool", text, title: label, "aria-label": t("column.of", { what: text.length > 1 ? text : label, policy: name }), on: { click }, ...more });
    this.badge = el("span", { class: "badge", hidden: true });
    this.pointer = tool("⇗", t("column.point"), () => this.page.point(), { "aria-pressed": "false" });
    this.closer = tool("×", t("column.remove"), () => this.page.close());
    this.about = el("p", { class: "hint about" });
    this.note = el("p", { class: "note" });
    this.hint = el("p", { class: "hint" });
    this.slider = el("input", { type: "range", min: 0, max: 0, value: 0, step: 1, disabled: true, "aria-label": t("column.slider", { policy: name }),
      on: { input: () => this.#show(Number(this.slider.value), true) } });
    this.player = tool("▶", t("column.replay"), () => this.replay(), { disabled: true });
    this.count = el("span", { class: "count" });
    this.steprow = el("div", { class: "steps", hidden: !policy.dreams }, this.player, this.slider, this.count);
    this.shown = new Shown(this);
    const { value, line, futures, bars, why } = this.shown.nodes;
    this.facts = el("p", { class: "facts" });
    const again = tool(t("column.analyse"), t("column.analyse-hint"), () => this.page.again());
    this.another = tool(t("column.another"), t("column.another-hint"), () => this.page.again(true), { hidden: true });
    this.saver = tool(t("column.save"), t("column.save-hint"), () => this.#save(), { hidden: true });
    this.gif = tool(t("column.gif"), t("column.gif-hint"), () => this.#animate(), { hidden: true });
    this.strength = el("details", { class: "strength" }, el("summary", { text: t("column.strength") }),
      el("p", { class: "hint", lang: "en", text: policy.about }), el("p", { class: "hint elo", text: eloWords(policy.rating) }),
      el("p", { class: "hint", text: t("column.strength-when") }),
      optionFields(policy, this.page.options(), this.page.setOption));
    this.body = el("div", { class: "body", hidden: true }, value, this.steprow, line, futures,
      el("section", { class: "choices-by-share" }, el("h4", { text: t("column.alternatives") }), bars, why), this.facts);
    const touched = () => this.page.touched();
    this.node = el("article", { class: `column hue-${this.hue}`, "aria-label": name, "aria-busy": "false", "data-policy": policy.id, tabIndex: -1, on: { pointerdown: touched, focusin: touched } },
      el("header", {}, el("h3", { text: policy.label }), this.badge, el("span", { class: "spring" }), this.pointer, this.closer),
      this.about, this.note, this.hint, this.body, el("footer", {}, again, this.another, this.saver, this.gif), this.strength);
    this.clear();
  }

  /** Forget the last analysis. */
  clear() {
    this.stop();
    Object.assign(this, { steps: [], at: -1, decision: null, question: null });
    this.note.replaceChildren(t("column.not-yet"));
    this.note.classList.remove("bad");
    this.another.hidden = this.gif.hidden = true;
    this.#empty();
  }

  /** Show nothing of the last analysis. */
  #empty() {
    this.body.hidden = this.steprow.hidden = this.saver.hidden = true;
    for (const text of [this.about, this.hint, this.facts]) text.textContent = "";
    this.shown.clear();
    delete this.node.dataset.step;
  }

  /** No longer asking. */
  #idle() {
    this.abort = null;
    this.node.style.minHeight = "";
    this.node.classList.remove("busy");
    this.node.setAttribute("aria-busy", "false");
  }

  #begin() {
    this.node.style.minHeight = `${this.node.offsetHeight}px`; // a page that shrinks for a moment scrolls away
    this.node.classList.add("busy");
    this.node.setAttribute("aria-busy", "true");
    this.note.replaceChildren(t(this.policy.dreams ? "column.dreaming" : "column.thinking"));
    this.note.classList.remove("bad");
    if ([this.body, this.saver].some((part) => part.contains(document.activeElement))) this.node.focus({ preventScroll: true }); // the focused element goes
    this.#empty();
    this.page.changed();
  }

  #failed(error) {
    this.failed = true;
    const retry = el("button", { type: "button", text: t("retry"), on: { click: () => this.page.again() } });
    this.note.replaceChildren(el("span", { text: error.message }), ...(error.retryable === false ? [] : [" ", retry]));
    this.note.classList.add("bad");
  }

  // ---- the stream ----------------------------------------------------------------------------------------------

  #step(step) {
    if (step.step === 1) this.steps = []; // what was begun did not fit into the clock
    this.steps.push(step);
    this.body.hidden = false;
    this.note.replaceChildren(step.of > 1 ? t("column.dreaming-at", { at: this.steps.length, of: step.of }) : t("column.thinking"));
    this.slider.max = Math.max(this.steps.length, step.of ?? 0) - 1;
    this.slider.disabled = this.player.disabled = false;
    this.steprow.hidden = this.slider.max < 1;
    // Where steps come faster than the screen draws, only the newest is drawn.
    this.frame ??= requestAnimationFrame(() => this.#drawNow());
  }

  /** Draw the newest step now, if it is waiting to be drawn. */
  #drawNow() {
    if (!this.frame) return;
    cancelAnimationFrame(this.frame);
    this.frame = null;
    if (this.following && this.steps.length) this.#show(this.steps.length - 1, false);
  }

  #decided(decision) {
    this.decision = decision;
    this.body.hidden = false;
    this.note.replaceChildren(el("span", { text: t("column.chooses") }), " ", el("strong", { text: this.page.write(decision) }), " ",
      el("button", { type: "button", class: "play", text: t("column.play"), on: { click: () => this.page.play(decision.move, this.question) } }));
    this.#markPlayed();
    this.slider.max = Math.max(0, this.steps.length - 1);
    this.slider.disabled = this.player.disabled = this.steps.length < 2;
    this.steprow.hidden = this.another.hidden = this.gif.hidden = this.steps.length < 2;
    this.shown.showValue(decision);
    if (!this.frame) {
      this.shown.showLine();
      this.shown.showBars((this.steps[this.at] ?? decision).policy ?? []);
    }
    if (!this.steps.length) this.shown.showFutures(this.#candidates(), []);
    const calls = decision.calls;
    const told = (decision.line ?? []).filter(({ move, legal }) => move || !legal); // a line that rightly ends has no more moves
    const sound = told.findIndex(({ legal }) => !legal);
    this.facts.textContent = [
      calls ? t("column.calls", { count: Math.round(calls) }) : "",
      decision.ms ? t("column.ms", { ms: Math.round(decision.ms) }) : "",
      decision.wdl ? t("column.draw", { percent: percent(decision.wdl[1]) }) : "",
      typeof decision.plies_left === "number" ? t("column.left", { count: Math.max(1, Math.round(decision.plies_left)) }) : "",
      this.policy.dreams && !this.steps.length && searches(this.policy) ? t("column.searched") : "",
      told.length > 1 ? legalWords(sound < 0 ? told.length : sound, told.length) : "",
    ].filter(Boolean).join(" · ");
    this.saver.hidden = !decision.svg;
    this.page.changed();
  }

  // ---- showing one step -----------------------------------------------------------------------------------------

  #show(at, byHand) {
    if (byHand) this.following = at === this.steps.length - 1;
    const before = this.steps[this.at];
    this.at = Math.max(0, Math.min(at, this.steps.length - 1));
    this.hint.textContent = "";
    const step = this.steps[this.at];
    this.slider.value = this.at;
    const of = this.decision ? this.steps.length : Math.max(this.steps.length, step.of ?? 0);
    this.count.textContent = `${this.at + 1} / ${of}`;
    this.slider.setAttribute("aria-valuetext", t("column.step", { at: this.at + 1, of }));
    this.node.dataset.step = String(this.at);
    this.shown.showLine();
    this.shown.showFutures(step.boards ?? [], before?.boards ?? []);
    this.shown.showBars(step.policy ?? []);
    this.page.changed();
  }

  /** Save the step shown as a picture. */
  async #save() {
    const { decision } = this;
    const boards = this.steps.length ? this.steps[this.at].boards ?? [] : this.#candidates();
    const line = this.shown.actions().map((action) => this.page.write(action)).join(" ");
    const told = { line, position: this.position.text, at: this.at + 1, of: this.steps.length };
    await savePicture({ title: t("picture.title", { policy: this.policy.label, move: this.page.write(decision) }),
      under: t(this.steps.length > 1 ? "picture.under-step" : "picture.under", told), root: decision.svg, boards: boards.map((board) => ({ ...board, caption: this.shown.caption(board) })) }, `${this.policy.label}-${decision.move}`.replace(/[^\w.-]+/g, "-"));
  }

  /** Save all steps as an animation; the server dreams the same dream again, and draws it. */
  async #animate() {
    const { dream, ...question } = this.question;
    this.gif.disabled = true;
    this.hint.textContent = t("column.gif-drawn");
    try {
      const { blob, name } = await animated({ ...question, ...this.used, dark: isDark() });
      download(blob, name);
      this.hint.textContent = t("save.done", { name });
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      this.hint.textContent = error.message;
    } finally {
      this.gif.disabled = false;
    }
  }

  /** Offer to play the move, unless it was played there. */
  #markPlayed() {
    const button = this.note.querySelector(".play");
    if (button) button.hidden = this.decision?.move === this.next;
  }

  #pause() {
    clearInterval(this.playing);
    this.playing = null;
    this.#playLabel();
  }

  #playLabel() {
    this.player.textContent = this.playing ? "❚❚" : "▶";
  }
}

/** A policy's Elo with its interval, in words; "" where it was not rated. */
function eloWords(rating) {
  if (!rating) return "";
  const [elo, low, high] = [rating.elo, rating.low, rating.high].map((each) => (each === null ? null : Math.round(each)));
  return t(low === null || high === null ? "column.elo" : "column.elo-interval", { elo, low, high, games: rating.games });
}

/** Whether a policy can search among imagined boards in place of denoising one future. */
const searches = ({ options }) => (options ?? []).some(({ name }) => name === "candidates");

/** How many moves of an imagined line are legal, in words. */
const legalWords = (legal, all) => t(`column.legal${legal < all ? "" : all === 2 ? "-both" : "-all"}`, { legal, all });

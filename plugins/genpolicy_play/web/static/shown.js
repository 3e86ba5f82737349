/** What a column shows of its analysis: the imagined moves and boards of a step, its alternatives, the value. */

import { calm, el, percent } from "./dom.js";
import { parseSvg, places, trim } from "./svg.js";
import { t } from "./words.js";

export class Shown {
  /**
   * @param {Object} column What is analysed, and how far: `policy`; `steps`, `at`: the step on show; `decision`, `question`, `position`,
   *   `names`: the legal moves as people write them; `page`, as `Column` describes it.
   */
  constructor(column) {
    this.column = column;
    const policy = column.policy.label;
    this.nodes = {
      value: el("div", { class: "value", hidden: true }),
      line: el("ol", { class: "line", "aria-label": t("column.moves", { policy }) }),
      futures: el("div", { class: "futures" }),
      bars: el("ol", { class: "bars", "aria-label": t("column.bars", { policy }) }),
      why: el("p", { class: "hint why" }),
    };
  }

  clear() {
    const { value, line, futures, bars, why } = this.nodes;
    value.hidden = true;
    why.textContent = "";
    for (const list of [line, futures, bars]) list.replaceChildren();
  }

  /** The imagined moves of the step shown, as people write them where that is known. */
  actions() {
    const line = this.column.decision?.line ?? [];
    const actions = this.column.steps[this.column.at]?.actions;
    if (!actions?.length) return line;
    return actions.map((action, index) => {
      const label = line[index]?.move === action.move ? line[index].label : index === 0 ? this.column.names.get(action.move) : undefined;
      return { ...action, label: label ?? action.label };
    });
  }

  showLine() {
    this.nodes.line.replaceChildren(...this.actions().map((action) => {
      const masked = Boolean(action.masked);
      const wrong = !masked && isWrong(action);
      const share = action.probability ?? 0;
      const written = this.column.page.write(action);
      const sure = action.probability === undefined ? written : t("column.chip-sure", { move: written, percent: percent(share) });
      const title = masked ? t("column.chip-masked", { move: sure }) : wrong ? t("column.chip-illegal", { move: sure }) : sure;
      return el("li", { class: `chip${masked ? " masked" : ""}${wrong ? " illegal" : ""}`, vars: { "--share": share.toFixed(3) }, title },
        el("span", { text: masked ? `${written}?` : written }),
        action.probability === undefined ? null : el("small", { text: percent(share) }));
    }), ...(this.column.steps[this.column.at]?.values ?? []).map((value) => {
      const side = this.column.page.players()[(this.column.position.player + value.ply) % 2];
      return el("li", { class: `chip${value.masked ? " masked" : ""}`, vars: { "--share": value.probability.toFixed(3) },
        title: t("column.value-after", { count: value.ply }) }, el("span", { text: t("column.wins", { player: side, percent: percent(value.win_probability) }) }));
    }));
  }

  showFutures(boards, before) {
    while (this.nodes.futures.children.length > boards.length) this.nodes.futures.lastChild.remove();
    boards.forEach((board, index) => {
      let figure = this.nodes.futures.children[index];
      if (!figure) figure = this.nodes.futures.appendChild(el("figure", {}, el("div", { class: "future" }), el("figcaption")));
      const caption = this.caption(board);
      figure.lastChild.textContent = caption;
      if (figure.shown === board.svg) return;
      const svg = parseSvg(board.svg);
      trim(svg);
      svg.setAttribute("role", "img"); // one picture for screen readers, not one for each square
      for (const place of places(svg).values()) place.removeAttribute("aria-label");
      svg.setAttribute("aria-label", caption || t("column.position"));
      if (before[index] && !calm()) fade(figure.firstChild.firstChild, svg);
      figure.firstChild.replaceChildren(svg);
      figure.shown = board.svg;
    });
  }

  showBars(alternatives) {
    const top = alternatives.slice(0, 5);
    const { move: chosen, label: written } = this.column.decision ?? {};
    if (chosen && top.length && top.every(({ move }) => move !== chosen)) {
      const found = alternatives.find(({ move }) => move === chosen) ?? this.column.steps[this.column.at]?.actions?.[0];
      if (found?.move === chosen) top.push({ move: chosen, label: written, probability: found.probability });
    }
    this.nodes.bars.replaceChildren(...top.map(({ move, label, probability }) => {
      const written = this.column.page.write({ move, label: label ?? this.column.names.get(move) });
      return el("li", {}, el("button", {
        type: "button", class: `bar${move === this.column.decision?.move ? " chosen" : ""}`, title: t("column.bar-hint"), "aria-label": t("column.bar", { move: written, percent: percent(probability) }),
        vars: { "--share": probability.toFixed(4) }, on: { click: () => this.column.page.play(move, this.column.question) },
      }, el("span", { class: "move", text: written }), el("span", { class: "share", text: percent(probability) })));
    }));
    this.nodes.why.textContent = this.#unlikely(top);
  }

  /** A sentence that says why the chosen move is not the likeliest of the last step, or "". */
  #unlikely(top) {
    const chosen = this.column.decision?.move;
    if (!chosen || !this.column.steps.length || this.column.at < this.column.steps.length - 1) return "";
    if (!top.length || top.some(({ move, probability }) => move === chosen && probability >= top[0].probability)) return "";
    const name = this.column.page.write(this.column.decision);
    const open = this.column.steps.findLastIndex(({ actions }) => !actions?.[0] || actions[0].masked || actions[0].move !== chosen);
    const settled = this.column.steps[open + 1];
    if (!settled) return t("column.unlikely", { move: name });
    const share = settled.policy?.find(({ move }) => move === chosen)?.probability;
    if (this.column.steps.length < 2) return t("column.drew", { move: name });
    return t(typeof share === "number" ? "column.settled-with" : "column.settled", { move: name, step: open + 2, percent: percent(share) });
  }

  /** What is known of an imagined board, in words: of a step of a dream, or of a move that a search judged. */
  caption({ ply, differs, masked, ended, line, value }) {
    if (line) {
      const [move, reply] = line.map((each) => this.column.page.write(each));
      const judged = typeof value === "number" ? t("caption.with", { when: move, what: percent((value + 1) / 2) }) : move;
      return reply === undefined ? judged : t("caption.then", { judged, reply });
    }
    const when = t("caption", { count: ply });
    const ruled = typeof differs !== "number" ? "" : t(differs ? "caption.differs" : "caption.agrees", { count: differs });
    const what = ended ? t("caption.ended") : masked ? t("caption.masked", { count: masked }) : ruled;
    return what ? t("caption.with", { when, what }) : when;
  }

  showValue(decision) {
    const win = decision.win_probability;
    this.nodes.value.hidden = typeof win !== "number";
    if (this.nodes.value.hidden) return;
    const [won, drawn, lost] = decision.wdl ?? [win, null, 1 - win];
    const [first, second] = this.column.position.player === 0 ? [won, lost] : [lost, won];
    const [white, black] = this.column.page.players();
    const draws = drawn === null ? "" : t("column.draw", { percent: percent(drawn) });
    this.nodes.value.replaceChildren(
      el("span", { text: t("column.win", { player: white, percent: percent(first) }) }),
      el("div", { class: `balance${draws && " drawn"}`, role: "img", "aria-label": t(draws ? "column.wins-or-draws" : "column.wins-with", { player: white, percent: percent(first), draw: draws }),
        title: draws, vars: { "--share": String(first), "--drawn": String(drawn ?? 0) } }),
      el("span", { text: t("column.win", { player: black, percent: percent(second) }) }));
  }
}

/** Whether an imagined move is illegal; of the moves after an illegal one this is not known. */
export const isWrong = (action) => action.legal === false && action.known !== false && Boolean(action.move);

/** Fade in the places that differ between two drawings of a board. */
function fade(old, svg) {
  if (!old) return;
  const past = places(old);
  for (const [number, place] of places(svg)) {
    if (past.get(number)?.innerHTML !== place.innerHTML) place.classList.add("fresh");
  }
}

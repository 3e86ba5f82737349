/** The line of moves on the page: playing on from it, the line before it, and where another position stands to it. */

import { t } from "./words.js";

/**
 * Play a move after `moves`. If the line continues with this move, it stays as it is; otherwise the old line is kept as
 * the former line, so that a slip loses nothing.
 */
export function branch(state, moves, move) {
  const line = [...moves, move];
  if (!begins(line, state.moves)) {
    if (!begins(state.moves, line)) state.former = former(state);
    const other = line.findIndex((each, index) => each !== state.moves[index]);
    Object.assign(state, { moves: line, labels: state.labels.slice(0, other), turns: state.turns.slice(0, other + 1), spent: state.spent.slice(0, other + 1) });
  }
  state.ply = line.length;
}

/** Swap the line with the former one. */
export function swap(state) {
  if (state.former) Object.assign(state, { turns: [], spent: [], ...state.former, former: former(state) });
}

const former = ({ moves, labels, turns, ply, spent }) => ({ moves, labels, turns, ply, spent });

/**
 * Where an analysed position stands to the one on the board, and which move was played in it.
 *
 * @param {Object} question Names the analysed position: game, start, moves.
 * @param {(index: number) => string} name The move of an index with its number, as people write it.
 * @returns {{about: string, next: string|null}} `about` is "" for the position on the board
 */
export function whence(question, state, name) {
  if (!question) return { about: "", next: null };
  if (question.game !== state.game || question.start !== state.start) return { about: t("about.other-game"), next: null };
  if (!begins(question.moves, state.moves)) return { about: t("about.dropped"), next: null };
  const at = question.moves.length;
  const about = at < state.ply ? t("about.before", { move: name(at) }) : at > state.ply ? t("about.after", { move: name(at - 1) }) : "";
  return { about, next: at < state.ply ? state.moves[at] : null };
}

const begins = (first, line) => first.length <= line.length && first.every((move, index) => move === line[index]);

/** Whether two questions are about the same position of the same game. */
export const sameMoves = (one, other) => ["game", "start", "moves"].every((part) => JSON.stringify(one[part]) === JSON.stringify(other[part]));

/** The moves of the game: what is played on them, what was played before, where another position stands to them. */

/**
 * Play a move after `moves`. Where the line goes on with that very move it stays as it is; what is cut off otherwise is
 * kept as the former line, so that a slip loses nothing.
 */
export function branch(state, moves, move) {
  const line = [...moves, move];
  if (!begins(line, state.moves)) {
    if (!begins(state.moves, line)) state.former = { moves: state.moves, labels: state.labels, ply: state.ply };
    const other = line.findIndex((each, index) => each !== state.moves[index]);
    Object.assign(state, { moves: line, labels: state.labels.slice(0, other) });
  }
  state.ply = line.length;
}

/** Put the former line on the board, and keep this one in its place. */
export function swap(state) {
  const { former, moves, labels, ply } = state;
  if (former) Object.assign(state, { ...former, former: { moves, labels, ply } });
}

/**
 * Where the position that was asked about stands to the one on the board, and how the line goes on there.
 *
 * @param {Object} asked A question: game, start, moves.
 * @param {(index: number) => string} name What people call the move of that index, with its number.
 * @returns {{about: string, next: string|null}} `about` is "" for the position on the board
 */
export function whence(asked, state, name) {
  if (!asked) return { about: "", next: null };
  if (asked.game !== state.game || asked.start !== state.start) return { about: "of another game", next: null };
  if (!begins(asked.moves, state.moves)) return { about: "of a line that is no longer here", next: null };
  const at = asked.moves.length;
  const about = at < state.ply ? `before ${name(at)}` : at > state.ply ? `after ${name(at - 1)}, which was taken back` : "";
  return { about, next: at < state.ply ? state.moves[at] : null };
}

const begins = (first, line) => first.length <= line.length && first.every((move, index) => move === line[index]);

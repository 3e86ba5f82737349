/** Sounds, made here: a knock for a move, a longer tone for the end of a game. */

const TONES = { move: { hertz: 190, seconds: 0.09 }, end: { hertz: 330, seconds: 0.5 } };
let context = null; // made by the first sound, as browsers ask for a click before it

/** @param {"move"|"end"} kind */
export function sound(kind) {
  const { hertz, seconds } = TONES[kind];
  context ??= new AudioContext();
  const now = context.currentTime;
  const [tone, level] = [context.createOscillator(), context.createGain()];
  tone.type = "triangle";
  tone.frequency.value = hertz;
  level.gain.setValueAtTime(0.25, now);
  level.gain.exponentialRampToValueAtTime(0.001, now + seconds);
  tone.connect(level).connect(context.destination);
  tone.start(now);
  tone.stop(now + seconds);
}

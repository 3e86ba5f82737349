#!/bin/sh
# The shogi demo: train the small S-ASA and S-A configurations on the bundled sample, measure both on held-out games,
# play a short game. `make demo GAME=shogi` calls it; RUNS is where everything goes. A second call trains anew.
set -eu
RUNS="${1:-runs/demo}"
SAMPLE=games/genpolicy_shogi/sample
show() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }

mkdir -p "$RUNS"
show genpolicy data info "$SAMPLE"
show genpolicy train --config configs/shogi/demo-s-a.yaml --out "$RUNS/s-a" --overwrite
show genpolicy train --config configs/shogi/demo.yaml --out "$RUNS/s-asa" --overwrite
show genpolicy evaluate accuracy --policy "$RUNS/s-asa/policy" "$RUNS/s-a/policy" --data "$SAMPLE" \
    --split test --limit 1500 --json "$RUNS/accuracy.json"
show genpolicy evaluate futures --policy "$RUNS/s-asa/policy" --data "$SAMPLE" --split test --limit 200
show genpolicy play --policy "$RUNS/s-asa/policy" --self-play 1 --max-plies 12

# With an engine the whole way, from positions to labels, is shown too; without it nothing above needs it.
if command -v fairy-stockfish >/dev/null 2>&1 || [ -x /usr/games/fairy-stockfish ]; then
    rm -rf "$RUNS/fresh"
    show genpolicy data selfplay --game shogi --oracle 'fairy-stockfish?nodes=1500&Contempt=0' --positions 10 \
        --max-plies 5 --seed 1 --out "$RUNS/fresh"
fi

cat <<END

The table above is what the two policies reach on games that they never saw. Next:
  genpolicy play --policy $RUNS/s-asa/policy                  play against it and see what it imagines
  tensorboard --logdir $RUNS                                  the curves of both runs
  genpolicy train --config configs/shogi/demo.yaml trainer.max_minutes=60 --out runs/longer
  genpolicy data import floodgate/2016 --game shogi --skip-bad --out runs/floodgate && \\
  genpolicy data label runs/floodgate --oracle 'fairy-stockfish?nodes=1500&Contempt=0' --processes 2 \\
      --out runs/floodgate-labelled
  genpolicy train --config configs/shogi/diffusearch.yaml data.folder=runs/floodgate-labelled
docs/shogi.md tells more.
END

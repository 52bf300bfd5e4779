#!/usr/bin/env bash
# Puts each bug of planted/ into a copy of the library, and looks for it: `simulation/run --planted [NAME..]`. Prints
# the seconds and the seed of the first violation of each, and fails if one is not found within SECONDS (60).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
tree=$root/simulation/target/planted
seconds=${SECONDS_EACH:-60}
names=("$@")
((${#names[@]} > 0)) || names=($(cd simulation/planted && ls -- *.patch | sed 's/\.patch$//'))

missed=0
for name in "${names[@]}"; do
    mkdir -p "$tree"
    git -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
        tar -cf - --null -T - | tar -xf - -C "$tree"
    # Files keep their times, so that only what a patch changes is built again: and what the one before has changed.
    sed -n 's|^+++ b/||p' simulation/planted/*.patch | sort -u | (cd "$tree" && xargs touch)
    [ -d "$tree/simulation/zookeeper-client" ] || cp --archive simulation/zookeeper-client "$tree/simulation/"
    patch --silent --strip=1 --directory="$tree" < "simulation/planted/$name.patch"
    (cd "$tree/simulation" && CARGO_TARGET_DIR=$root/simulation/target/planted-build \
        cargo build --quiet --release --locked --bin simulation)
    code=0
    found=$("$root/simulation/target/planted-build/release/simulation" --seconds "$seconds" --until-violation --json \
        2>"$tree/violations") || code=$?
    if ((code == 1)); then
        printf '%-28s found    %s\n' "$name" "$(head -n 1 "$tree/violations" | cut -c1-150)"
        printf '%s\n' "$found" | sed 's/.*"worlds":\([0-9]*\),"seconds":\([0-9.]*\).*/                             \1 worlds, \2 s/'
    else
        printf '%-28s NOT FOUND in %s s (exit code %s)\n' "$name" "$seconds" "$code"
        missed=1
    fi
done
exit "$missed"

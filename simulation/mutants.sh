#!/usr/bin/env bash
# Mutation tests of what is pure in the library: `simulation/mutants.sh [FILE..]`, all files by default. Prints
# what no test catches, and a table; see mutants.md. Needs cargo-mutants (`cargo install cargo-mutants --locked`),
# which says what the mutants are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Not below simulation/, whose flags Cargo would add to those of the copy.
out=$PWD/target/mutants
files=("$@")
((${#files[@]} > 0)) || files=(
    'src/protocol/**'
    src/session/{threads/clock,contents/holds,contents/unknown_creates,request/retry,dial/sasl,dial/servers}.rs
)

simulation/rewrite.sh
rm -rf "$out/tree"
mkdir -p "$out/tree/simulation"
git -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
    tar -cf - --null -T - | tar -xf - -C "$out/tree"
cp --archive simulation/zookeeper-client "$out/tree/simulation/"
cargo mutants --list --json --features metrics,tls "${files[@]/#/--file=}" > "$out/list.json"
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$out/build} python3 simulation/mutants.py "$out/tree" "$out/list.json" "$out"

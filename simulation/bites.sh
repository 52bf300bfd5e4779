#!/usr/bin/env bash
# Puts each patch of a folder into a copy of the library, one at a time, and looks for a violation: `simulation/run
# --planted` and `--reverted`, with `--record` for a new table in the folder's README.md, and with names for some of
# the patches. First the recorded seed is played, then one world after another, for SECONDS_EACH seconds (60). Fails if
# a patch is not found, or does not apply.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
folder=simulation/$1
shift
record=
names=()
for argument in "$@"; do
    if [[ $argument == --record ]]; then record=1; else names+=("$argument"); fi
done
((${#names[@]} > 0)) || mapfile -t names < <(cd "$folder" && ls -- *.patch | sed 's/\.patch$//')

# Not below `simulation`, whose flags would count twice there, and not its target: cargo takes the two trees for one, and
# the other would be given what was built from a patch.
tree=$root/target/bites
target=$root/target/bites.built
built=$target/debug/simulation
found=$target/found
rows=$target/rows
mkdir -p "$target"
: > "$rows"

# A file that is as it was keeps its time, so that only what a patch changes is built again.
synchronize() {
    local file
    mkdir -p "$tree"
    { git -c safe.directory='*' ls-files -z --cached --others --exclude-standard
        find simulation/zookeeper-client -type f -print0; } |
        while IFS= read -r -d '' file; do
            [[ -f $file ]] || continue
            cmp --quiet -- "$file" "$tree/$file" || cp --parents -- "$file" "$tree"
        done
}

# Worlds, as the arguments say. Writes `<seed> <violation>` of the first violation to $found, and sets worlds and seconds.
# A world that comes to no end is no violation.
worlds=0 seconds=0 limit=${SECONDS_EACH:-60}
play() {
    local output code=0
    { output=$({ TIMEFORMAT='%U'; time timeout "$((limit * 2 + 60))" "$tree/simulation.bin" --json --until-violation "$@" \
        2> "$found.all" 3>&-; } 2> "$found.time"); } || code=$?
    worlds=$(sed -n 's/.*"worlds":\([0-9]*\).*/\1/p' <<< "$output")
    seconds=$(tail -n 1 "$found.time")
    sed -n 's/^VIOLATION seed \([0-9]*\)/\1/p' "$found.all" | sort --stable --numeric-sort | head -n 1 > "$found"
    return "$code"
}

failed=0
synchronize
for name in "${names[@]}"; do
    patch=$root/$folder/$name.patch
    if ! patch --silent --forward --dry-run --strip=1 --directory="$tree" < "$patch" > "$found.all" 2>&1; then
        sed 's/^/    /' "$found.all"
        cat <<END
$name: DOES NOT APPLY. Make its change by hand in a clean checkout, and then
    (sed '/^diff /,\$d' $folder/$name.patch; git diff src) > new && mv new $folder/$name.patch && git checkout src
END
        failed=1
        continue
    fi
    patch --silent --forward --strip=1 --no-backup-if-mismatch --directory="$tree" < "$patch"
    code=0
    (cd "$tree/simulation" && CARGO_TARGET_DIR=$target cargo build --quiet --locked --bin simulation) || code=$?
    cp -- "$built" "$tree/simulation.bin"
    patch --silent --reverse --strip=1 --no-backup-if-mismatch --directory="$tree" < "$patch"
    if ((code != 0)); then
        echo "$name: DOES NOT BUILD"
        failed=1
        continue
    fi
    # Long worlds take a minute each.
    only=(--only 'long: false')
    while IFS= read -r text; do only+=(--only "$text"); done < <(sed -n '/^diff /q; s/^Worlds: //p' "$patch")
    known=$(sed -n "s/^| \`$name\` | [^|]* | \([0-9]*\) |.*/\1/p" "$folder/README.md" 2> /dev/null || true)
    code=0
    if [[ -n $known && -z $record ]]; then
        play --from "$known" --worlds 1 --threads 1 || code=$?
    fi
    if ((code != 1)); then
        code=0
        play --seconds "$limit" ${THREADS:+--threads "$THREADS"} "${only[@]}" || code=$?
    fi
    if ((code == 1)); then
        printf '%-36s found     %5s worlds %7s s   seed %s\n' "$name" "$worlds" "$seconds" "$(cut -c1-150 "$found")"
        about=$(sed -n '/^diff /q; s|^Rule: \(#\(.*\)\)|[\2](../../docs/protocol.md\1)|p; s|^Test: \(.*\)|`\1`|p' "$patch")
        echo "| \`$name\` | $about | $(cut -d' ' -f1 "$found") | $worlds | $seconds |" >> "$rows"
    else
        printf '%-36s NOT FOUND in %s worlds, %s s (exit code %s)\n' "$name" "$worlds" "$seconds" "$code"
        failed=1
    fi
done

if [[ -n $record ]]; then
    # New rows in place of the old ones, and the others as they were.
    {
        sed '/^| `/d' "$folder/README.md"
        { cat "$rows"; grep '^| `' "$folder/README.md" || true; } | sort --stable --unique --key=2,2 --field-separator='|'
    } > "$rows.new"
    cp -- "$rows.new" "$folder/README.md"
fi
exit "$failed"

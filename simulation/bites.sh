#!/usr/bin/env bash
# Puts all patches of `planted` and `reverted` into one copy of the library, each behind a switch, and looks for a
# violation with each bug of one folder turned on: `simulation/run --planted` and `--reverted`, with `--record` for a new
# table in the folder's README.md, and with names for some of the patches. First the recorded seed is played, then one
# world after another, for SECONDS_EACH seconds (60) of processor time; THREADS bugs at a time (as many as processors).
# A patch with a line `Found by: KIND TEST` has no worlds: that test of the copy, of KIND scenario, in_process or lib, must
# fail with the bug, and pass without it. Fails if a bug is not found, or a patch does not apply.
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
for name in "${names[@]}"; do
    [[ -f $folder/$name.patch ]] || { echo "$name: there is no $folder/$name.patch" >&2; exit 2; }
done

# Not below `simulation`, whose flags would count twice there, and not its target: cargo takes the two trees for one, and
# the other would be given what was built from the patches.
tree=$root/target/bites
target=$root/target/bites.built
hunts=$root/target/bites.hunts
simulation=$target/debug/simulation
declare -A tests=()

# Makes the tree anew. A file that is as it was keeps its time, so that only what has changed is built again.
make_tree() {
    local new=$tree.new file patch failed=0
    rm -rf -- "$new"
    mkdir -p "$new"
    { git -c safe.directory='*' ls-files -z --cached --others --exclude-standard
        find simulation/zookeeper-client -type f -print0; } |
        while IFS= read -r -d '' file; do
            # One that is deleted, and not yet committed.
            if [[ -f $file ]]; then printf '%s\0' "$file"; fi
        done | xargs -0 cp --parents --target-directory="$new" --

    echo 'mod planted;' >> "$new/src/lib.rs"
    cat > "$new/src/planted.rs" <<'END'
//! Which bug is turned on.

use std::sync::LazyLock;

static ON: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("PLANTED").ok());

pub(crate) fn is(name: &str) -> bool {
    ON.as_deref() == Some(name)
}
END
    for patch in simulation/planted/*.patch simulation/reverted/*.patch; do
        if ! grep --quiet --fixed-strings "crate::planted::is(\"$(basename "$patch" .patch)\")" "$patch"; then
            echo "$patch: HAS NO SWITCH of its name" >&2
            failed=1
        elif ! patch --silent --forward --strip=1 --no-backup-if-mismatch --reject-file=- --directory="$new" < "$patch"
        then
            cat >&2 <<END
$patch: DOES NOT APPLY. Make its change by hand in a clean checkout, and then
    (sed '/^diff /,\$d' $patch; git diff src) > new && mv new $patch && git checkout src
END
            failed=1
        fi
    done
    ((failed == 0)) || return 1

    while IFS= read -r -d '' file; do
        if cmp --quiet -- "$new/$file" "$tree/$file"; then touch --reference="$tree/$file" -- "$new/$file"; fi
    done < <(cd "$new" && find . -type f -print0)
    rm -rf -- "$tree"
    mv -- "$new" "$tree"
}

# Builds a kind of the tests of the copy, and sets its program. That of the scenarios has the simulation beside it.
build() {
    local kind=$1 directory=$tree built=$target.tests select=(-p zookeeper-recipes --test in_process) name=in_process
    case $kind in
        scenario) directory=$tree/simulation built=$target select=(--test scenarios) name=scenarios ;;
        lib) select=(-p zookeeper-recipes --lib) name=zookeeper_recipes ;;
        in_process) ;;
        *) echo "$kind: there are no such tests" >&2; return 2 ;;
    esac
    tests[$kind]=$(cd "$directory" && CARGO_TARGET_DIR=$built cargo test --quiet --locked --no-run "${select[@]}" \
        --message-format json-render-diagnostics |
        sed -n "s|.*\"executable\":\"\([^\"]*/deps/$name-[^\"]*\)\".*|\1|p")
}

# Prints who finds a bug if no world is to: the kind of its test, and the name.
finder() {
    sed -n '/^diff /q; s/^Found by: //p' "$folder/$1.patch"
}

# The other worlds have as many faults, and take longer.
readonly SHORT=(--threads 1 --json --only 'session_timeout: 4s')
limit=${SECONDS_EACH:-60}

# Worlds with a bug, as the arguments say. Sets seed and violation, which are empty if there is none, worlds and seconds.
# A world that comes to no end is no violation.
play() {
    local name=$1 code=0
    shift
    { TIMEFORMAT='%U'; time PLANTED=$name timeout "$((limit * 4 + 60))" "$simulation" "${SHORT[@]}" --until-violation \
        "$@" > "$hunts/$name.json" 2> "$hunts/$name.seen" 3>&-; } 2> "$hunts/$name.time" || code=$?
    worlds=$(sed -n 's/.*"worlds":\([0-9]*\).*/\1/p' "$hunts/$name.json")
    seconds=$(tail -n 1 "$hunts/$name.time")
    violation=$(sed -n '/^VIOLATION seed /{s///p;q}' "$hunts/$name.seen")
    seed=${violation%%[!0-9]*}
}

# Runs the test that finds a bug, and writes a row for the table if it does. One that comes to no end finds nothing.
run_test() {
    local name=$1 kind=$2 test=$3 seconds code=0
    { TIMEFORMAT='%U'; time PLANTED=$name timeout "$((limit * 4))" "${tests[$kind]}" --exact "$test" \
        > "$hunts/$name.seen" 2>&1; } 2> "$hunts/$name.time" || code=$?
    seconds=$(tail -n 1 "$hunts/$name.time")
    # The code of a failed test. A name that no test has passes with the bug.
    if ((code != 101)); then
        printf '%-40s NOT FOUND by %s (code %s)\n' "$name" "$test" "$code"
    elif ! timeout "$((limit * 4))" "${tests[$kind]}" --exact "$test" > "$hunts/$name.without" 2>&1; then
        printf '%-40s NOT FOUND: %s fails without it, too\n' "$name" "$test"
    else
        printf '%-40s found     by the test %7s s   %s\n' "$name" "$seconds" "$test"
        echo "| \`$name\` | $(about "$name") | \`$test\` | | $seconds |" > "$hunts/$name.row"
    fi
}

# Prints what a bug breaks, for the table.
about() {
    sed -n '/^diff /q; s|^Rule: \(#\(.*\)\)|[\2](../../docs/protocol.md\1)|p; s|^Test: \(.*\)|`\1`|p' "$folder/$1.patch"
}

# Looks for one bug, and writes a row for the table if it is found.
hunt() {
    local kind test
    if read -r kind test < <(finder "$1"); then
        run_test "$1" "$kind" "$test"
        return
    fi
    local name=$1 patch=$folder/$1.patch only=() text known seed= violation= worlds= seconds=
    while IFS= read -r text; do only+=(--only "$text"); done < <(sed -n '/^diff /q; s/^Worlds: //p' "$patch")
    known=$(sed -n "s/^| \`$name\` | [^|]* | \([0-9]*\) |.*/\1/p" "$folder/README.md")
    if [[ -n $known && -z $record ]]; then play "$name" --from "$known" --worlds 1; fi
    if [[ -z $seed ]]; then play "$name" --cpu-seconds "$limit" "${only[@]}"; fi
    if [[ -z $seed ]]; then
        printf '%-40s NOT FOUND in %s worlds, %s s\n' "$name" "${worlds:-endless}" "$seconds"
    elif ! "$simulation" --from "$seed" --worlds 1 "${SHORT[@]}" > "$hunts/$name.without" 2>&1; then
        printf '%-40s NOT FOUND: seed %s is violated without it, too\n' "$name" "$seed"
    else
        printf '%-40s found     %5s worlds %7s s   seed %s\n' "$name" "$worlds" "$seconds" "${violation:0:150}"
        echo "| \`$name\` | $(about "$name") | $seed | $worlds | $seconds |" > "$hunts/$name.row"
    fi
}

make_tree
unset PLANTED
build scenario
for name in "${names[@]}"; do
    read -r kind test < <(finder "$name") || continue
    [[ -n ${tests[$kind]:-} ]] || build "$kind"
done
if ! "$simulation" --worlds 5 "${SHORT[@]}"; then
    echo 'the worlds are violated with no bug turned on' >&2
    exit 1
fi
rm -rf -- "$hunts"
mkdir -p "$hunts"
for name in "${names[@]}"; do
    while (($(jobs -pr | wc -l) >= ${THREADS:-$(nproc)})); do wait -n || true; done
    hunt "$name" &
done
wait

failed=0
for name in "${names[@]}"; do
    [[ -f $hunts/$name.row ]] || failed=1
done
if [[ -n $record ]]; then
    # New rows in place of the old ones, and the others as they were.
    {
        sed '/^| `/d' "$folder/README.md"
        { cat "$hunts"/*.row; grep '^| `' "$folder/README.md" || true; } |
            sort --stable --unique --key=2,2 --field-separator='|'
    } > "$hunts/README.md"
    cp -- "$hunts/README.md" "$folder/README.md"
fi
exit "$failed"

#!/bin/sh
# Runs cargo in a copy of this workspace with a patched zookeeper-client, for comparison only:
#
#     docs/upstream/patched.sh PATCH.. -- CARGO-ARGUMENTS..
#     docs/upstream/patched.sh nodelay tokio-sockets -- run --release -p lockbench -- --quick
#
# The patches are applied in this order; tokio-sockets needs nodelay before it. All is under target/patched,
# and nothing in the working tree changes, Cargo.lock neither.
set -eu

version=0.11.2
pages=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$pages/../.." && pwd)

patches=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    [ -f "$pages/$1.patch" ] || { echo "there is no $pages/$1.patch" >&2; exit 2; }
    patches="$patches $1"
    shift
done
[ -n "$patches" ] && [ $# -gt 1 ] || { echo "usage: $0 PATCH.. -- CARGO-ARGUMENTS.." >&2; exit 2; }
shift

cd "$root"
build=$root/target/patched/$(echo $patches | tr ' ' +)
library=$build/zookeeper-client
workspace=$build/workspace
mkdir -p "$workspace"

for name in $patches; do cat "$pages/$name.patch"; done > "$build/wanted"
if ! cmp -s "$build/wanted" "$build/applied"; then
    published=$(cargo metadata --format-version 1 --locked |
        grep -o "\"manifest_path\":\"[^\"]*/zookeeper-client-$version/Cargo.toml\"" | head -n 1 |
        sed 's/^"manifest_path":"//; s/\/Cargo.toml"$//')
    [ -n "$published" ] || { echo "the sources of zookeeper-client $version were not found" >&2; exit 1; }
    rm -rf "$library"
    cp -R "$published" "$library"
    chmod -R u+w "$library"
    patch -s -p1 -d "$library" < "$build/wanted"
    if grep -q '^tokio-net = ' "$library/Cargo.toml"; then
        # No member of this workspace can ask for a feature that the published library has not.
        sed 's/^default = \[\]$/default = ["tokio-net"]/' "$library/Cargo.toml" > "$build/manifest"
        mv "$build/manifest" "$library/Cargo.toml"
    fi
    mv "$build/wanted" "$build/applied"
fi

rm -rf "$workspace"
mkdir "$workspace"
git ls-files -z --cached --others --exclude-standard | tar -cf - --null -T - | tar -xf - -C "$workspace"
cd "$workspace"
subcommand=$1
shift
UPSTREAM_PATCHES=$patches CARGO_TARGET_DIR=$build/target \
    exec cargo "$subcommand" --config "patch.crates-io.zookeeper-client.path='$library'" "$@"

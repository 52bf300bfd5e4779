#!/bin/sh
# Makes simulation/zookeeper-client from the published sources: its sockets, timers, tasks and random orders are
# the simulation's. Nothing of it is committed. Does nothing if it has been made by this script before.
set -eu
cd "$(dirname "$0")"
version=0.11.2
made=zookeeper-client/.made-by
[ -f "$made" ] && cmp -s rewrite.sh "$made" && exit 0

# Cargo fetches it, with the lock file of the project.
host=$(rustc -vV | sed -n 's/^host: //p')
published=$(cd .. && cargo metadata --format-version 1 --locked --filter-platform "$host" |
    grep -o "\"manifest_path\":\"[^\"]*/zookeeper-client-$version/Cargo.toml\"" | head -n 1 |
    sed 's/^"manifest_path":"//; s/\/Cargo.toml"$//')
[ -n "$published" ] || { echo "the sources of zookeeper-client $version were not found" >&2; exit 1; }
rm -rf zookeeper-client
cp -R "$published" zookeeper-client
chmod -R u+w zookeeper-client
cd zookeeper-client

sed -i '
    s/use async_net::TcpStream;/use simnet::net::TcpStream;/
    s/use async_io::Timer;/use simnet::time::Timer;/
    s/use asyncs::{select, sync};/use asyncs::sync;\nuse tokio::select;/
    s/use asyncs::select;/use tokio::select;/
    s/use hashbrown::HashMap;/type HashMap<K, V> = hashbrown::HashMap<K, V, std::hash::BuildHasherDefault<std::collections::hash_map::DefaultHasher>>;/
    s/HashMap::with_capacity(\([0-9]*\))/HashMap::with_capacity_and_hasher(\1, Default::default())/
' src/session/*.rs src/endpoint.rs src/deadline.rs
sed -i 's/asyncs::spawn(/simnet::spawn(/' src/client/mod.rs

# Without its own sockets, timers, tests and profiles.
awk '
    /^\[/ { drop = /^\[dependencies\.async-(io|net)\]|^\[\[test\]\]|^\[dev-dependencies|^\[profile/ }
    !drop { print }
    END {
        print "\n[dependencies.simnet]\npath = \"../simnet\""
        print "\n[dependencies.tokio]\nversion = \"1\"\nfeatures = [\"macros\"]"
    }
' Cargo.toml > manifest && mv manifest Cargo.toml

if grep -rn 'async_io::\|async_net::\|^use hashbrown\|asyncs::select\|asyncs::spawn' src/client src/session src/endpoint.rs src/deadline.rs; then
    echo "zookeeper-client $version is not what this script was written for" >&2
    exit 1
fi
cp ../rewrite.sh .made-by
